// SPDX-License-Identifier: Apache-2.0

// Package output writes what the subcommands have found: as text for people, in colours on a terminal, or as JSON or YAML
// for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// The formats.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

var formats = []string{FormatTable, FormatJSON, FormatYAML}

// Format is the value of --output.
type Format string

// Bind adds the flag to the command.
func (f *Format) Bind(command *cobra.Command) {
	*f = FormatTable
	command.Flags().StringVarP((*string)(f), "output", "o", FormatTable, "how to write the result: "+strings.Join(formats, ", "))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Check fails for an unknown format.
func (f Format) Check() error {
	if !slices.Contains(formats, string(f)) {
		return fmt.Errorf("--output is %q; it must be one of %s", string(f), strings.Join(formats, ", "))
	}
	return nil
}

// Write writes the value as JSON or YAML, or calls text for a table.
func (f Format) Write(w io.Writer, value any, text func(p *Printer)) error {
	switch f {
	case FormatJSON:
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		data = append(data, '\n')
		_, err = w.Write(data)
		return err
	case FormatYAML:
		data, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		_, err = w.Write(data)
		return err
	}
	p := &Printer{colours: HasColours(w)}
	text(p)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// HasColours reports whether the writer is a terminal on which colours are welcome: https://no-color.org.
func HasColours(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether the writer is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
