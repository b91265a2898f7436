// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/report anew")

// The figures in testdata/report are made up.
func TestResultsAreWrittenIntoTheDocuments(t *testing.T) {
	for _, test := range []struct{ name, directory string }{
		{"all that the benchmark measures, and a subject that did not finish", "complete"},
		{"missed budgets, and missing parts", "missed"},
		{"decisions alone", "decisions"},
		{"nothing", "nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			golden := filepath.Join("testdata", "report", test.directory)
			got, descriptions := writeReport(t, golden)
			// The second time around there is something to replace.
			again, _ := writeReport(t, golden)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("the same results make different documents (-first +second):\n%s", diff)
			}
			for name, content := range map[string]string{"documents.md": got, "charts.json": descriptions} {
				file := filepath.Join(golden, name)
				if *update {
					if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), content); diff != "" {
					t.Errorf("%s; go test ./hack/bench -run TestResults -update writes it anew (-want +got):\n%s", file, diff)
				}
			}
		})
	}
}

// writeReport returns both documents and the descriptions of the charts.
func writeReport(t *testing.T, directory string) (documents, descriptions string) {
	t.Helper()
	p := published{
		results: filepath.Join(directory, "bench.json"), microbench: filepath.Join(directory, "microbench.txt"),
		performance: filepath.Join(t.TempDir(), "performance.md"), operations: filepath.Join(t.TempDir(), "operations.md"),
	}
	for file, sections := range map[string][]string{p.performance: {"results", "beyond"}, p.operations: {"sizing"}} {
		content := "# A document\n"
		for _, section := range sections {
			begin, end := marks(section)
			content += "\n" + begin + "\nold\n" + end + "\n"
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	for range 2 {
		out.Reset()
		if err := p.write(&out); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{p.performance, p.operations} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents += string(content)
	}
	return documents, out.String()
}

func TestADocumentWithoutItsMarksIsRefused(t *testing.T) {
	begin, end := marks("results")
	for name, document := range map[string]string{
		"no marks": "text\n", "no end": begin + "\n", "the end first": end + begin + "\n", "two sections": begin + end + begin + end,
	} {
		if got, err := replaceSection(document, "results", "new"); err == nil {
			t.Errorf("%s: got %q and no error", name, got)
		}
	}
}

func TestWhatIsNotOfTheSectionStays(t *testing.T) {
	begin, end := marks("results")
	got, err := replaceSection("before\n"+begin+"\nold\n"+end+"\nafter\n", "results", "new\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n" + begin + "\n\nnew\n\n" + end + "\nafter\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMicrobenchmarksThatCannotBeReadAreAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "microbench.txt")
	if err := os.WriteFile(file, []byte("BenchmarkX-2 many 1 ns/op\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readMicrobench(file); err == nil || !strings.Contains(err.Error(), "microbench.txt:1") {
		t.Errorf("got %v, %v; want an error that names the line", got, err)
	}
}
