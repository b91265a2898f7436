// SPDX-License-Identifier: Apache-2.0

// Package output writes the results of the subcommands: as text, or as JSON or YAML for programs. It defines
// their exit codes.
package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// APIVersion is the version of the JSON and YAML output.
const APIVersion = "cli." + v1alpha1.GroupName + "/v1alpha1"

// Header starts every JSON and YAML output.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// NewHeader returns the header of an output of the kind.
func NewHeader(kind string) Header { return Header{APIVersion, kind} }

// Format is the value of --output.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
	// FormatName is KIND/NAME, one a line, as in kubectl. Few commands have it.
	FormatName Format = "name"
)

// Bind adds the flag to the command.
func (f *Format) Bind(command *cobra.Command) {
	BindChoice(command, f, "output", "o", "output format: table, json, yaml", FormatTable, FormatJSON, FormatYAML)
}

// Write writes the value as JSON or YAML, or calls text for a table. The output contains no control characters from the value.
func (f Format) Write(w io.Writer, value any, text func(p *Printer)) error {
	var encoded string
	var err error
	switch f {
	case FormatJSON:
		encoded, err = encodeJSON(value, safetext.EscapeLines)
	case FormatYAML:
		encoded, err = encodeYAML(value)
	default:
		p := &Printer{terminalWidth: terminalWidth(w)}
		text(p)
		encoded = p.text.String()
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = io.WriteString(w, encoded)
	return err
}

// encodeJSON calls escape for the control characters that the encoder does not escape: it escapes C0 only.
func encodeJSON(value any, escape func(string) string) (string, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	return escape(string(data)) + "\n", err
}

// encodeYAML returns JSON, which is also YAML, if the YAML would contain control characters. YAML can escape them in double
// quotes only, and the encoder writes most strings without quotes.
func encodeYAML(value any) (string, error) {
	asJSON, err := encodeJSON(value, safetext.EscapeYAML)
	if err != nil {
		return "", err
	}
	data, err := yaml.JSONToYAML([]byte(asJSON))
	if text := string(data); text == safetext.EscapeLines(text) {
		return text, err
	}
	return asJSON, err
}

// terminalWidth returns the number of columns of a terminal, or 0 for other writers.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	// It returns 0 with an error.
	columns, _, _ := term.GetSize(int(file.Fd()))
	return columns
}

// ErrProblem means that the command has reported a problem.
var ErrProblem = errors.New("a problem was found")

// Report writes the error of a command, except ErrProblem, and returns the exit code, on which scripts depend: 0 without an error, 1 with
// ErrProblem, and 2 with any other.
func Report(w io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrProblem):
		return 1
	}
	all := []error{err}
	if joined, several := err.(interface{ Unwrap() []error }); several {
		all = joined.Unwrap()
	}
	for _, one := range all {
		if !errors.Is(one, context.Canceled) {
			_, _ = fmt.Fprintln(w, "error:", safetext.EscapeLines(one.Error()))
		}
	}
	return 2
}
