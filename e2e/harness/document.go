//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// updateDocumentsEnvVar set to 1 writes what the tests have found to the documents that they check otherwise.
const updateDocumentsEnvVar = "UPDATE_DOCS"

// RequireDocument requires that a file of the repository says what the test has found.
func (t *Test) RequireDocument(path, content string) {
	t.Helper()
	file := filepath.Join(t.Repository, filepath.FromSlash(path))
	if os.Getenv(updateDocumentsEnvVar) == "1" {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatalf("Write %s: %v", path, err)
		}
		return
	}
	current, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Read %s: %v", path, err)
	}
	if string(current) != content {
		t.Errorf("%s does not say what was found; run this test again with %s=1. Found:\n%s", path, updateDocumentsEnvVar, content)
	}
}

// RequireSection requires that the section of a document says what the test has found. A section begins with the line
// `<!-- begin NAME: ... -->` and ends with the line `<!-- end NAME -->`.
func (t *Test) RequireSection(path, name, content string) {
	t.Helper()
	current, err := os.ReadFile(filepath.Join(t.Repository, filepath.FromSlash(path)))
	if err != nil {
		t.Fatalf("Read %s: %v", path, err)
	}
	before, rest, begins := strings.Cut(string(current), fmt.Sprintf("<!-- begin %s: ", name))
	comment, rest, opens := strings.Cut(rest, "-->\n")
	_, after, ends := strings.Cut(rest, fmt.Sprintf("<!-- end %s -->\n", name))
	if !begins || !opens || !ends {
		t.Fatalf("%s has no section %s", path, name)
	}
	t.RequireDocument(path, fmt.Sprintf("%s<!-- begin %s: %s-->\n\n%s\n<!-- end %s -->\n%s", before, name, comment, content, name, after))
}
