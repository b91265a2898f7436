// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"path/filepath"
	"testing"
)

func module(t *testing.T, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func mustKey(t *testing.T, tool Tool, files map[string]string) string {
	t.Helper()
	digest, err := key(tool, module(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestKeyCoversWhatDecidesTheBinaries(t *testing.T) {
	tool := Tool{Name: "a-v1", Packages: map[string]string{"a": "example.com/a"}, LinkerFlags: "-s"}
	files := map[string]string{"go.mod": "module a", "go.sum": "sum"}
	base := mustKey(t, tool, files)
	if again := mustKey(t, tool, files); again != base {
		t.Errorf("the key of the same tool changed from %s to %s", base, again)
	}
	flags, packages, change := tool, tool, tool
	change.Change = "rm a.go"
	flags.LinkerFlags = "-w"
	packages.Packages = map[string]string{"a": "example.com/b"}
	for name, other := range map[string]string{
		"go.mod":       mustKey(t, tool, map[string]string{"go.mod": "module b", "go.sum": "sum"}),
		"go.sum":       mustKey(t, tool, map[string]string{"go.mod": "module a", "go.sum": "other"}),
		"linker flags": mustKey(t, flags, files),
		"packages":     mustKey(t, packages, files),
		"change":       mustKey(t, change, files),
		"source":       mustKey(t, tool, map[string]string{"go.mod": "module a", "go.sum": "sum", "main.go": "package main"}),
		"file borders": mustKey(t, tool, map[string]string{"go.mod": "module as", "go.sum": "um"}),
	} {
		if other == base {
			t.Errorf("the key does not cover: %s", name)
		}
	}
}

func TestKeyNeedsTheToolModule(t *testing.T) {
	if _, err := key(Etcd(), t.TempDir()); err == nil {
		t.Error("a directory without a module has a key")
	}
}
