//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
