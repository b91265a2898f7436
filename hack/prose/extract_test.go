// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	for _, name := range []string{"old.go.strings.txt", "old.go.names.txt", "deny.yaml.strings.txt", "run.sh.strings.txt"} {
		for _, text := range strings.Split(strings.TrimRight(read(t, "out", name), " \n"), "\n") {
			got[name] = append(got[name], strings.TrimSpace(text))
		}
	}
	want := map[string][]string{
		"old.go.strings.txt":    {"", "", "", "", "", "", "", "", "", "", "the message of two literals"},
		"old.go.names.txt":      {"old.", "", "", "", "pod plan.", "modes.", "", "", "", "wait. old chain."},
		"deny.yaml.strings.txt": {"a comment", "message: not allowed"},
		"run.sh.strings.txt":    {"", "a comment"},
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("the texts differ (-want +got):\n%s", difference)
	}
}

func TestSampleRepeatsWithItsSeed(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "old.go", source)
	put(t, "page.md", "# A heading that is left out\n\nThe first sentence is here. The second one\nis here, too.\n\n```sh\nthis is code and left out\n```\n\n"+
		"| a cell with five words too | short |\n")
	var first, second bytes.Buffer
	for _, output := range []*bytes.Buffer{&first, &second} {
		if err := run([]string{"sample", "7"}, strings.NewReader("old.go\npage.md\n"), output); err != nil {
			t.Fatal(err)
		}
	}
	if difference := cmp.Diff(first.String(), second.String()); difference != "" {
		t.Errorf("two samples of one seed differ:\n%s", difference)
	}
	want := []string{
		"1. `old.go:9`: wait waits until the pod is quiet.",
		"1. `old.go:11`: the message of two literals",
		"2. `page.md:10`: a cell with five words too",
		"3. `page.md:3`: The first sentence is here.",
		"4. `page.md:3`: The second one is here, too.",
	}
	var got []string
	for _, line := range strings.Split(first.String(), "\n") {
		if strings.Contains(line, "`: ") {
			got = append(got, line)
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("the sample differs (-want +got):\n%s", difference)
	}
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
