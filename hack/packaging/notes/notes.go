// SPDX-License-Identifier: Apache-2.0

// Package notes reads the notes of a release from the changelog.
package notes

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	heading    = regexp.MustCompile(`(?m)^## \[([^\]]+)\].*$`)
	definition = regexp.MustCompile(`(?m)^\[[^\]]+\]: .*$`)
	// A relative link has no colon, and starts with neither # nor /.
	relative = regexp.MustCompile(`\]\(([^)\s:#/][^)\s:]*)\)`)
)

// Of returns the section of a tag, such as v0.1.0. Relative links become links to the files of the tag, because the page of a
// release is not in the directory of the changelog. Each paragraph and each entry is one line, because the page keeps line breaks.
func Of(changelog, tag string) (string, error) {
	version := strings.TrimPrefix(tag, "v")
	sections := heading.FindAllStringSubmatchIndex(changelog, -1)
	for i, section := range sections {
		if changelog[section[2]:section[3]] != version {
			continue
		}
		end := len(changelog)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		text := strings.TrimSpace(definition.ReplaceAllString(changelog[section[1]:end], ""))
		if text == "" {
			return "", fmt.Errorf("the section [%s] of CHANGELOG.md is empty", version)
		}
		const files = "https://github.com/sidecar-termination/operator/blob/"
		return relative.ReplaceAllString(unwrap(text), "]("+files+tag+"/$1)") + "\n", nil
	}
	return "", fmt.Errorf("CHANGELOG.md has no section [%s]", version)
}

// unwrap joins the lines of each paragraph and of each entry of a list. The changelog has no blocks of code.
func unwrap(text string) string {
	var result strings.Builder
	open := false // says that the last line can continue
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		words := strings.TrimLeft(line, " ")
		starts := words == "" || strings.HasPrefix(words, "#") || strings.HasPrefix(words, "- ")
		switch {
		case open && !starts:
			line = " " + words
		case result.Len() > 0:
			result.WriteString("\n")
		}
		result.WriteString(line)
		open = line != "" && !strings.HasPrefix(line, "#")
	}
	return result.String()
}
