// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "update testdata/report")

// The figures in testdata/report are made up.
func TestReport(t *testing.T) {
	for _, name := range []string{"complete", "missed"} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", "report", name)
			got := writeReport(t, golden)
			file := filepath.Join(golden, "documents.md")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s; update it with go test -run TestReport -update (-want +got):\n%s", file, diff)
			}
		})
	}
}

// writeReport returns the document after the second report: the first one left something to replace.
func writeReport(t *testing.T, results string) string {
	t.Helper()
	docs := documents(t.TempDir())
	if err := os.CopyFS(docs.path("performance"), os.DirFS(results)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(docs.path("performance.md"), []byte("# A document\n\n"+beginResults+"\nold\n"+endResults+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := docs.write(); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(docs.path("performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestReplaceResultsNeedsMarks(t *testing.T) {
	const begin, end = beginResults, endResults
	for name, document := range map[string]string{
		"no marks": "text\n", "no end": begin + "\n", "the end first": end + begin + "\n", "two sections": begin + end + begin + end,
	} {
		if got, err := replaceResults(document, "new"); err == nil {
			t.Errorf("%s: got %q and no error", name, got)
		}
	}
}

func TestReplaceResults(t *testing.T) {
	const begin, end = beginResults, endResults
	got, err := replaceResults("before\n"+begin+"\nold\n"+end+"\nafter\n", "new")
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n" + begin + "\n\nnew\n\n" + end + "\nafter\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadMicrobenchReportsBadLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "microbench.txt")
	if err := os.WriteFile(file, []byte("BenchmarkX-2 many 1 ns/op\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readMicrobench(file, "X"); err == nil || !strings.Contains(err.Error(), "microbench.txt:1") {
		t.Errorf("got %v, %v; want an error that names the line", got, err)
	}
}
