// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"fmt"
	"strings"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// outcome is the outcome of a case.
type outcome string

const (
	passed outcome = "Passed"
	failed outcome = "Failed"
)

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	Summary summary      `json:"summary"`
	Files   []fileResult `json:"files"`
}

// summary counts the cases that ran, and the files that could not be read.
type summary struct {
	Passed       int `json:"passed"`
	Failed       int `json:"failed"`
	InvalidFiles int `json:"invalidFiles"`
}

// fileResult is the outcome of a test file.
type fileResult struct {
	File string `json:"file"`
	// Error is why the file could not be read, or empty. None of its cases ran.
	Error string       `json:"error,omitempty"`
	Cases []caseResult `json:"cases"`
	// Notes say what was assumed, and what was ignored.
	Notes []string `json:"notes,omitempty"`
}

// caseResult is the outcome of a case.
type caseResult struct {
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
	// Differences are the expectations that do not hold, and Decision is what the operator decides instead.
	Differences []difference `json:"differences,omitempty"`
	Decision    string       `json:"decision,omitempty"`
}

func newResult() *result {
	return &result{Header: output.NewHeader(kind + "Report"), Files: []fileResult{}}
}

// add adds the outcome of a file.
func (r *result) add(file fileResult) {
	r.Files = append(r.Files, file)
	if file.Error != "" {
		r.Summary.InvalidFiles++
	}
	for _, c := range file.Cases {
		if c.Outcome == passed {
			r.Summary.Passed++
		} else {
			r.Summary.Failed++
		}
	}
}

// newCaseResult compares the decision of a fixture with the expectation.
func newCaseResult(c testCase, f fixture) caseResult {
	report := f.explain()
	r := caseResult{Name: c.Name, Outcome: passed, Differences: c.Expect.compare(f, &report)}
	if len(r.Differences) > 0 {
		r.Outcome, r.Decision = failed, describe(report)
	}
	return r
}

// describe returns the stage, reason and message of the decision.
func describe(report explain.Report) string {
	decision := report.Decision()
	return fmt.Sprintf("%s (%s): %s", decision.Stage, decision.Reason, decision.Message)
}

func (r *result) text(p *output.Printer) {
	for _, file := range r.Files {
		p.StyledLine(output.Bold, file.File)
		for line := range strings.Lines(file.Error) {
			p.Prose([]output.Cell{{Text: "  "}, {Text: "ERROR", Style: output.Red}, {Text: "  "}}, line)
		}
		for _, c := range file.Cases {
			writeCase(p, c)
		}
		for _, note := range file.Notes {
			p.Note(note)
		}
	}
	style, ran := output.Green, r.Summary.Passed+r.Summary.Failed
	if r.Summary.Failed+r.Summary.InvalidFiles > 0 {
		style = output.Red
	}
	text := fmt.Sprintf("Ran %d %s: %d passed, %d failed", ran, plural(ran, "case"), r.Summary.Passed, r.Summary.Failed)
	if invalid := r.Summary.InvalidFiles; invalid > 0 {
		text += fmt.Sprintf("; %d %s invalid", invalid, plural(invalid, "file"))
	}
	p.StyledLine(style, text)
}

// writeCase writes the outcome of a case, and a table of the expectations that do not hold.
func writeCase(p *output.Printer, c caseResult) {
	if c.Outcome == passed {
		p.Prose([]output.Cell{{Text: "  "}, {Text: "PASS", Style: output.Green}, {Text: "  "}}, c.Name)
		return
	}
	p.Prose([]output.Cell{{Text: "  "}, {Text: "FAIL", Style: output.Red}, {Text: "  "}}, c.Name)
	var rows [][]output.Cell
	for _, d := range c.Differences {
		rows = append(rows, []output.Cell{{Text: "        " + d.Field}, {Text: d.Want, Style: output.Green}, {Text: d.Got, Style: output.Red}})
	}
	p.Table([]string{"        FIELD", "WANT", "GOT"}, rows)
	p.Prose(output.Cells("        decision: "), c.Decision)
}

func plural(count int, noun string) string {
	if count == 1 {
		return noun
	}
	return noun + "s"
}
