// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"testing"
	"testing/fstest"
)

func mustKey(t *testing.T, tool Tool, files map[string]string) string {
	t.Helper()
	module := fstest.MapFS{}
	for name, content := range files {
		module[name] = &fstest.MapFile{Data: []byte(content)}
	}
	digest, err := key(tool, module)
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
	if _, err := key(Etcd(), fstest.MapFS{}); err == nil {
		t.Error("a directory without a module has a key")
	}
}
