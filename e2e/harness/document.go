//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// updateDocumentsEnvVar set to 1 writes the results of tests to documents instead of comparing.
const updateDocumentsEnvVar = "UPDATE_DOCS"

// RequireSection requires that the section of a document has the content. A section begins with the line
// `<!-- begin NAME: ... -->` and ends with the line `<!-- end NAME -->`.
func (t *Test) RequireSection(path, name, content string) {
	t.Helper()
	file := filepath.Join(t.Repository, filepath.FromSlash(path))
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("Read %s: %v", path, err)
	}
	before, rest, begins := strings.Cut(string(document), fmt.Sprintf("<!-- begin %s: ", name))
	comment, rest, opens := strings.Cut(rest, "-->\n")
	_, after, ends := strings.Cut(rest, fmt.Sprintf("<!-- end %s -->\n", name))
	if !begins || !opens || !ends {
		t.Fatalf("%s has no section %s", path, name)
	}
	updated := fmt.Sprintf("%s<!-- begin %s: %s-->\n\n%s\n\n<!-- end %s -->\n%s", before, name, comment, strings.TrimSpace(content), name, after)
	switch {
	case updated == string(document):
	case os.Getenv(updateDocumentsEnvVar) != "1":
		t.Errorf("Section %s of %s is outdated; run this test with %s=1. Results:\n%s", name, path, updateDocumentsEnvVar, content)
	default:
		if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
			t.Fatalf("Write %s: %v", path, err)
		}
	}
}
