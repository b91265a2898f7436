// SPDX-License-Identifier: Apache-2.0

// Package packagingtest has what the tests of packages share.
package packagingtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Module returns the directory of a module, another one at each call, with a program that
// is compiled in seconds.
func Module(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.test/program\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { panic(\"the trace has the file's path\") }\n",
		"LICENSE": "licence\n",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}
