//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// matrixTable returns the table of the results, with one row for all modes of a combination.
func matrixTable(all []cell, results []outcome) string {
	table := newModeTable("restartPolicy", "main", "sidecar", "native sidecar")
	for i := 0; i < len(all); i += len(modes) {
		native := "no"
		if all[i].native {
			native = "yes"
		}
		fmt.Fprintf(&table.Builder, "| %s | %s | %s | %s |", all[i].restartPolicy, all[i].main, all[i].sidecar, native)
		for j := range modes {
			_, exception := all[i+j].expect()
			table.cell(results[i+j].words(), exception.words())
		}
		table.WriteString("\n")
	}
	return table.String()
}

// modeTable is a Markdown table whose last columns are the modes, with footnotes.
type modeTable struct {
	strings.Builder
	notes []string
}

func newModeTable(columns ...string) *modeTable {
	for _, mode := range modes {
		columns = append(columns, string(mode))
	}
	table := &modeTable{}
	fmt.Fprintf(&table.Builder, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	return table
}

// cell writes a cell, with the number of its note unless that is empty.
func (t *modeTable) cell(words, note string) {
	fmt.Fprintf(&t.Builder, " %s", words)
	if note != "" {
		if !slices.Contains(t.notes, note) {
			t.notes = append(t.notes, note)
		}
		fmt.Fprintf(&t.Builder, " (%d)", slices.Index(t.notes, note)+1)
	}
	t.WriteString(" |")
}

// String returns the table and its notes.
func (t *modeTable) String() string {
	out := t.Builder.String() + "\n"
	for i, note := range t.notes {
		out += fmt.Sprintf("%d. %s\n", i+1, note)
	}
	return strings.TrimSuffix(out, "\n")
}

func (o outcome) words() string {
	switch {
	case o == complete, o == failed:
		return o.job
	case o.pod == "Deleted":
		return o.job + ", deleted"
	default:
		return fmt.Sprintf("%s, pod %s, %d runs", o.job, o.pod, o.runs)
	}
}
