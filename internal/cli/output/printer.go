// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Style is how a piece of text is shown on a terminal. It means nothing elsewhere, where the words must do.
type Style string

// The styles, as terminals know them.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// width is how long a line of prose may get.
const width = 110

// Printer gathers text.
type Printer struct {
	text    strings.Builder
	colours bool
}

// Line writes a line.
func (p *Printer) Line(format string, arguments ...any) {
	_, _ = fmt.Fprintf(&p.text, format+"\n", arguments...)
}

// Styled returns the text in the style.
func (p *Printer) Styled(style Style, text string) string {
	if !p.colours || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Prose writes text in lines of bounded length. The first one begins with the head, whose length is given without its
// styles, and the others are as far from the margin.
func (p *Printer) Prose(head string, length int, text string) {
	line, indent := head, strings.Repeat(" ", length)
	used := length
	for i, word := range strings.Fields(text) {
		if i > 0 && used+1+utf8.RuneCountInString(word) > width {
			p.Line("%s", line)
			line, used = indent+word, length+utf8.RuneCountInString(word)
			continue
		}
		if i > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+utf8.RuneCountInString(word)
	}
	p.Line("%s", strings.TrimRight(line, " "))
}

// Cell is a piece of a row.
type Cell struct {
	Text  string
	Style Style
}

// Cells makes plain cells.
func Cells(texts ...string) []Cell {
	cells := make([]Cell, 0, len(texts))
	for _, text := range texts {
		cells = append(cells, Cell{Text: text})
	}
	return cells
}

// gap is between two columns.
const gap = "   "

// Table writes aligned columns under a heading. A column that is empty in every row is left out.
func (p *Printer) Table(heading []string, rows [][]Cell) {
	all := [][]Cell{Cells(heading...)}
	for i := range all[0] {
		all[0][i].Style = Bold
	}
	all = append(all, rows...)
	widths := make([]int, len(heading))
	for column := range heading {
		for i, row := range all {
			if length := utf8.RuneCountInString(row[column].Text); i > 0 && length > 0 {
				widths[column] = max(widths[column], length, utf8.RuneCountInString(heading[column]))
			}
		}
	}
	for _, row := range all {
		var line strings.Builder
		padding := ""
		for column, cell := range row {
			if widths[column] == 0 {
				continue
			}
			line.WriteString(padding + p.Styled(cell.Style, cell.Text))
			padding = strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell.Text)) + gap
		}
		p.Line("%s", strings.TrimRight(line.String(), " "))
	}
}
