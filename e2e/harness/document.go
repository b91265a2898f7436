//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// updateDocumentsEnvVar set to 1 writes what the tests have found to the documents that they check otherwise.
const updateDocumentsEnvVar = "UPDATE_DOCS"

// RequireSection requires that a section of a file of the repository says what the test has found: the section with the
// heading "## …" with which the content begins, or what is before the first such heading.
func (t *Test) RequireSection(path, content string) {
	t.Helper()
	t.requireDocument(path, content, func(document string) string { return replaceSection(document, content) })
}

// RequireMarkedSection requires that the section of a document says what the test has found. A section begins with the line
// `<!-- begin NAME: ... -->` and ends with the line `<!-- end NAME -->`.
func (t *Test) RequireMarkedSection(path, name, content string) {
	t.Helper()
	t.requireDocument(path, content, func(document string) string {
		before, rest, begins := strings.Cut(document, fmt.Sprintf("<!-- begin %s: ", name))
		comment, rest, opens := strings.Cut(rest, "-->\n")
		_, after, ends := strings.Cut(rest, fmt.Sprintf("<!-- end %s -->\n", name))
		if !begins || !opens || !ends {
			t.Fatalf("%s has no section %s", path, name)
		}
		return fmt.Sprintf("%s<!-- begin %s: %s-->\n\n%s\n<!-- end %s -->\n%s", before, name, comment, content, name, after)
	})
}

// requireDocument requires that the change leaves the file as it is, or with UPDATE_DOCS=1 writes the file.
func (t *Test) requireDocument(path, found string, change func(document string) string) {
	t.Helper()
	file := filepath.Join(t.Repository, filepath.FromSlash(path))
	current, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Read %s: %v", path, err)
	}
	changed := change(string(current))
	switch {
	case changed == string(current):
	case os.Getenv(updateDocumentsEnvVar) != "1":
		t.Errorf("%s does not say what was found; run this test again with %s=1. Found:\n%s", path, updateDocumentsEnvVar, found)
	default:
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatalf("Write %s: %v", path, err)
		}
	}
}

// replaceSection returns the document with the content in place of the section of the same heading, or at its end.
func replaceSection(document, content string) string {
	const mark = "\n## "
	heading := func(section string) string {
		line, _, _ := strings.Cut(section, "\n")
		return line
	}
	sections := strings.Split("\n"+document, mark)
	for i := range sections {
		sections[i] = strings.TrimSpace(sections[i])
	}
	if text, ok := strings.CutPrefix(content, mark[1:]); !ok {
		sections[0] = strings.TrimSpace(content)
	} else if i := slices.IndexFunc(sections[1:], func(section string) bool { return heading(section) == heading(text) }); i >= 0 {
		sections[1+i] = strings.TrimSpace(text)
	} else {
		sections = append(sections, strings.TrimSpace(text))
	}
	return strings.Join(sections, "\n"+mark) + "\n"
}
