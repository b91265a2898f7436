// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/explain"
)

// Findings writes findings with their hints.
func (p *Printer) Findings(findings []explain.Finding) {
	for _, finding := range findings {
		text := finding.Message
		if finding.Reason != "" {
			text = fmt.Sprintf("%s: %s", finding.Reason, text)
		}
		// All severities have the length of the longest, so that texts align.
		p.Item(fmt.Sprintf("%-7s", strings.ToLower(string(finding.Severity))), text, finding.Hint, finding.Commands...)
	}
}

// Item writes a text after a word, and below it a hint, which may be empty, and commands, which are never wrapped.
func (p *Printer) Item(word, text, hint string, commands ...string) {
	p.Prose("  "+word+"  ", text)
	indent := strings.Repeat(" ", len(word)+4)
	if hint != "" {
		p.Prose(indent+"-> ", hint)
	}
	for _, command := range commands {
		p.Line("%s   %s", indent, command)
	}
}

// Note writes a note on the whole output.
func (p *Printer) Note(text string) { p.Prose("note: ", text) }

// FailOn is the value of --fail-on: the least severity with exit code 1.
type FailOn string

const (
	failOnProblem FailOn = "problem"
	failOnWarning FailOn = "warning"
)

// Bind adds the flag to the command.
func (f *FailOn) Bind(command *cobra.Command) {
	BindChoice(command, f, "fail-on", "", "least severity with exit code 1: problem or warning", failOnProblem, failOnWarning)
}

// Judge returns ErrProblem if the worst severity reaches the value.
func (f FailOn) Judge(worst explain.Severity) error {
	if worst == explain.SeverityProblem || worst == explain.SeverityWarning && f == failOnWarning {
		return ErrProblem
	}
	return nil
}
