// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sidecar-termination/operator/internal/terminal"
)

// Style is the colour of a text on a terminal. Other outputs ignore it.
type Style string

// The styles, as ANSI codes.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// width is the maximum length of a line of prose.
const width = 110

// Printer collects text. It escapes its arguments, so that only its own styles and newlines control a terminal.
type Printer struct {
	text    strings.Builder
	colours bool
}

// Line writes a line.
func (p *Printer) Line(format string, arguments ...any) {
	p.line(terminal.Escape(fmt.Sprintf(format, arguments...)))
}

// StyledLine writes a line in the style.
func (p *Printer) StyledLine(style Style, text string) {
	p.line(p.styled(Cell{text, style}.escaped()))
}

// line writes escaped text.
func (p *Printer) line(escaped string) {
	p.text.WriteString(escaped + "\n")
}

// styled returns the text of an escaped cell in its style.
func (p *Printer) styled(cell Cell) string {
	if !p.colours || cell.Style == Plain || cell.Text == "" {
		return cell.Text
	}
	return "\x1b[" + string(cell.Style) + "m" + cell.Text + "\x1b[0m"
}

// Prose wraps text. The first line starts with the head, and the other lines have the same indent.
func (p *Printer) Prose(head []Cell, text string) {
	line, length := "", 0
	for _, cell := range head {
		cell = cell.escaped()
		line, length = line+p.styled(cell), length+utf8.RuneCountInString(cell.Text)
	}
	indent, used := strings.Repeat(" ", length), length
	for i, word := range strings.Fields(text) {
		word = terminal.Escape(word)
		if i > 0 && used+1+utf8.RuneCountInString(word) > width {
			p.line(line)
			line, used = indent+word, length+utf8.RuneCountInString(word)
			continue
		}
		if i > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+utf8.RuneCountInString(word)
	}
	p.line(strings.TrimRight(line, " "))
}

// Cell is a text with a style.
type Cell struct {
	Text  string
	Style Style
}

func (c Cell) escaped() Cell { return Cell{terminal.Escape(c.Text), c.Style} }

// Cells makes plain cells.
func Cells(texts ...string) []Cell {
	cells := make([]Cell, 0, len(texts))
	for _, text := range texts {
		cells = append(cells, Cell{Text: text})
	}
	return cells
}

// gap separates two columns.
const gap = "   "

// Table writes aligned columns under a heading. It omits columns that are empty in every row.
func (p *Printer) Table(heading []string, rows [][]Cell) {
	all := [][]Cell{Cells(heading...)}
	for i := range all[0] {
		all[0][i].Style = Bold
	}
	for _, row := range rows {
		escaped := make([]Cell, 0, len(row))
		for _, cell := range row {
			escaped = append(escaped, cell.escaped())
		}
		all = append(all, escaped)
	}
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
			line.WriteString(padding + p.styled(cell))
			padding = strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell.Text)) + gap
		}
		p.line(strings.TrimRight(line.String(), " "))
	}
}
