// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sidecar-termination/operator/internal/safetext"
)

const (
	// proseWidth is the maximum length of a line of prose in files and pipes. Their tables have no limit.
	proseWidth = 110
	// minWrapped is the least width of wrapped text, however narrow the terminal is.
	minWrapped = 16
)

// Printer collects text. It escapes its arguments, so that only its own newlines control a terminal.
type Printer struct {
	text strings.Builder
	// terminalWidth is the number of columns of the terminal, or 0 for other outputs.
	terminalWidth int
}

// Line writes a line.
func (p *Printer) Line(format string, arguments ...any) {
	p.line(safetext.Escape(fmt.Sprintf(format, arguments...)))
}

// line writes escaped text.
func (p *Printer) line(escaped string) {
	p.text.WriteString(escaped + "\n")
}

// Prose wraps text to the width of the terminal. The first line starts with the head, and the other lines have the same indent.
func (p *Printer) Prose(head, text string) {
	line := safetext.Escape(head)
	length := utf8.RuneCountInString(line)
	width := proseWidth - length
	if p.terminalWidth > 0 {
		width = max(p.terminalWidth-length, minWrapped)
	}
	for i, wrapped := range wrap(safetext.Escape(strings.Join(strings.Fields(text), " ")), width) {
		if i > 0 {
			line = strings.Repeat(" ", length)
		}
		p.line(strings.TrimRight(line+wrapped, " "))
	}
}

// wrap breaks text between words into lines of the width. A longer word has a longer line. There is at least one line.
func wrap(text string, width int) []string {
	var lines []string
	line, used := "", 0
	for i, word := range strings.Split(text, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			line, used = word, length
		case used+1+length > width:
			lines = append(lines, line)
			line, used = word, length
		default:
			line, used = line+" "+word, used+1+length
		}
	}
	return append(lines, line)
}

// gap separates two columns.
const gap = "   "

// Table writes aligned columns under a heading. It omits columns that are empty in every row. On a terminal it wraps the texts of
// columns that do not fit.
func (p *Printer) Table(heading []string, rows [][]string) {
	all := [][]string{heading}
	for _, row := range rows {
		escaped := make([]string, 0, len(row))
		for _, cell := range row {
			escaped = append(escaped, safetext.Escape(cell))
		}
		all = append(all, escaped)
	}
	widths := p.widths(all)
	for _, row := range all {
		p.row(row, widths)
	}
}

// widths returns the widths of the columns, or 0 for a column that is empty in every row. It narrows the widest columns until the rows
// fit the terminal or cannot become shorter.
func (p *Printer) widths(rows [][]string) []int {
	widths, least := make([]int, len(rows[0])), make([]int, len(rows[0]))
	excess := -len(gap) - p.terminalWidth
	for column := range widths {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
			continue
		}
		for _, row := range rows {
			widths[column] = max(widths[column], utf8.RuneCountInString(row[column]))
			for word := range strings.SplitSeq(row[column], " ") {
				least[column] = max(least[column], minWrapped, utf8.RuneCountInString(word))
			}
		}
		excess += widths[column] + len(gap)
	}
	for p.terminalWidth > 0 && excess > 0 {
		widest := -1
		for column, width := range widths {
			if width > least[column] && (widest < 0 || width > widths[widest]) {
				widest = column
			}
		}
		if widest < 0 {
			break
		}
		narrowed := min(excess, widths[widest]-least[widest])
		widths[widest], excess = widths[widest]-narrowed, excess-narrowed
	}
	return widths
}

// row writes the cells of a row, which may have several lines.
func (p *Printer) row(row []string, widths []int) {
	wrapped, height := make([][]string, len(row)), 1
	for column, cell := range row {
		if widths[column] > 0 {
			wrapped[column] = wrap(cell, widths[column])
			height = max(height, len(wrapped[column]))
		}
	}
	for i := range height {
		var line strings.Builder
		for column, width := range widths {
			if width == 0 {
				continue
			}
			text := ""
			if i < len(wrapped[column]) {
				text = wrapped[column][i]
			}
			line.WriteString(text + strings.Repeat(" ", width-utf8.RuneCountInString(text)) + gap)
		}
		p.line(strings.TrimRight(line.String(), " "))
	}
}
