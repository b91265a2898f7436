//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// matrixTable returns the table of the results, with one row for all columns of a combination.
func matrixTable(all []cell, results []outcome) string {
	table := newTable(append([]string{"restartPolicy", "main", "sidecar", "native sidecar"}, namesOf(columns)...)...)
	for i := 0; i < len(all); i += len(columns) {
		native := "no"
		if all[i].native {
			native = "yes"
		}
		fmt.Fprintf(&table.Builder, "| %s | %s | %s | %s |", all[i].restartPolicy, all[i].main, all[i].sidecar, native)
		for j := range columns {
			_, exception := all[i+j].expect()
			table.cell(results[i+j].words(), exception.words())
		}
		table.WriteString("\n")
	}
	return table.String()
}

// limitTable returns the table of the cells with backoffLimit 1.
func limitTable(all []cell, results []outcome) string {
	table := newTable("restartPolicy", "sidecar", string(columnNative))
	for i, c := range all {
		fmt.Fprintf(&table.Builder, "| %s | %s |", c.restartPolicy, c.sidecar)
		_, exception := c.expect()
		table.cell(results[i].words(), exception.words())
		table.WriteString("\n")
	}
	return table.String()
}

func namesOf(columns []matrixColumn) []string {
	var names []string
	for _, column := range columns {
		names = append(names, string(column))
	}
	return names
}

// noteTable is a Markdown table with footnotes.
type noteTable struct {
	strings.Builder
	notes []string
}

func newTable(columns ...string) *noteTable {
	table := &noteTable{}
	fmt.Fprintf(&table.Builder, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	return table
}

// cell writes a cell, with the number of its note unless that is empty.
func (t *noteTable) cell(words, note string) {
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
func (t *noteTable) String() string {
	out := t.Builder.String() + "\n"
	for i, note := range t.notes {
		out += fmt.Sprintf("%d. %s\n", i+1, note)
	}
	return strings.TrimSuffix(out, "\n")
}

func (o outcome) words() string {
	switch {
	case o == complete, o == failed, o.job == neverStarts:
		return o.job
	case o.pod == "Deleted":
		return o.job + ", deleted"
	default:
		return fmt.Sprintf("%s, pod %s, %d runs", o.job, o.pod, o.runs)
	}
}
