// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// absent stands in cells of tables for what was not measured.
const absent = "-"

// table is a table in Markdown. The first columns are text, all others are numbers and stand to the right.
type table struct {
	header []string
	text   int
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "---"
		if i >= t.text {
			rule[i] = "---:"
		}
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "| %s |\n|%s|\n", strings.Join(t.header, " | "), strings.Join(rule, "|"))
	for _, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.ReplaceAll(strings.Join(row, " | "), "\n", " "))
	}
	return out.String()
}

// marks returns the comments between which a section of a document is generated.
func marks(section string) (begin, end string) {
	return "<!-- begin " + section + ": written by make bench-report; changes made here are lost -->", "<!-- end " + section + " -->"
}

// replaceSection puts content between the marks of a section.
func replaceSection(document, section, content string) (string, error) {
	begin, end := marks(section)
	before, rest, found := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed || strings.Contains(after, begin) {
		return "", fmt.Errorf("the document has not exactly one section %q, which begins with %s and ends with %s", section, begin, end)
	}
	return before + begin + "\n\n" + strings.TrimSpace(content) + "\n\n" + end + after, nil
}

// grouped writes a whole number with its digits grouped by thousands.
func grouped(number int) string {
	digits := strconv.Itoa(number)
	var parts []string
	for len(digits) > 3 {
		parts = append(parts, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	parts = append(parts, digits)
	slices.Reverse(parts)
	return strings.Join(parts, ",")
}

// list joins words as a sentence does.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
