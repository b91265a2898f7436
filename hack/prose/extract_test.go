// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const source = `package old

import "a path that is no text"

type podPlan struct {
	Modes int ` + "`json:\"a tag that is no text\"`" + `
}

// wait waits until the pod is quiet.
func wait(oldChain string) string {
	return "the message of two " +
		"literals" + oldChain
}
`

func TestExtractKeepsLines(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "old.go", source)
	put(t, "deny.yaml", "# a comment\nmessage: not allowed\n")
	put(t, "run.sh", "true\necho # a comment\n")
	if err := extract([]string{"old.go", "deny.yaml", "run.sh"}, "out"); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, name := range []string{"old.go.strings.txt", "old.go.names.txt", "old.go.comments", "deny.yaml.strings.txt", "run.sh.strings.txt"} {
		for _, text := range strings.Split(strings.TrimRight(read(t, "out", name), " \n"), "\n") {
			got[name] = append(got[name], strings.TrimSpace(text))
		}
	}
	want := map[string][]string{
		"old.go.strings.txt":    {"", "", "", "", "", "", "", "", "", "", "the message of two literals"},
		"old.go.names.txt":      {"old.", "", "", "", "pod plan.", "modes.", "", "", "", "wait. old chain."},
		"old.go.comments":       {"", "", "", "", "", "", "", "", "wait waits until the pod is quiet."},
		"deny.yaml.strings.txt": {"a comment", "message: not allowed"},
		"run.sh.strings.txt":    {"", "a comment"},
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("the texts differ (-want +got):\n%s", difference)
	}
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
