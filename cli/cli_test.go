// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/safetext"
)

var update = flag.Bool("update", false, "write the golden files, and the outputs in the documentation")

// noon is when the tests take place.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// runPlugin runs the kubectl plugin, and returns its output and exit code.
func runPlugin(t *testing.T, stdin []byte, arguments ...string) (string, int) {
	t.Helper()
	// A test must not reach a real cluster.
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out bytes.Buffer
	command := newPlugin(noon)
	command.SetArgs(arguments)
	command.SetIn(bytes.NewReader(stdin))
	command.SetOut(&out)
	command.SetErr(&out)
	code := output.Report(&out, command.ExecuteContext(t.Context()))
	return out.String(), code
}

// TestOutputs compares the output of commands with testdata/cli/NAME.txt of the repository. The first line of a file is
// the command line, the last one the exit code. Run with -update to rewrite the files, and review the difference.
func TestOutputs(t *testing.T) {
	t.Chdir("../testdata/cli")
	files, err := filepath.Glob("*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d golden files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(golden), "\n")
			got := first + "\n" + runLine(t, first)
			if diff := cmp.Diff(safetext.EscapeLines(got), got); diff != "" {
				t.Errorf("control characters reach the terminal (-want +got):\n%q", diff)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(golden), got); diff != "" && !*update {
				t.Errorf("the output differs; run this test with -update and review the difference (-want +got):\n%s", diff)
			}
		})
	}
}

// runLine runs a command line and returns its output and exit code. "< FILE" is its standard input.
func runLine(t *testing.T, line string) string {
	t.Helper()
	line, input, _ := strings.Cut(line, " < ")
	arguments := strings.Fields(strings.TrimPrefix(line, "$ kubectl sidecar-termination "))
	var stdin []byte
	if input != "" {
		var err error
		if stdin, err = os.ReadFile(input); err != nil {
			t.Fatal(err)
		}
	}
	out, code := runPlugin(t, stdin, arguments...)
	return out + "exit code " + string(rune('0'+code)) + "\n"
}

// TestDocumentedOutputs runs the command in each document that reads files, and compares its output.
func TestDocumentedOutputs(t *testing.T) {
	t.Chdir("..")
	const start, end = "```console\n", "```\n"
	for _, file := range []string{"docs/cli/explain.md", "docs/cli/lint.md", "docs/guides/testing-policies.md"} {
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(document), start); got != 1 {
			t.Fatalf("%s shows %d outputs, want 1", file, got)
		}
		before, block, _ := strings.Cut(string(document), start)
		console, after, _ := strings.Cut(block, end)
		command, _, _ := strings.Cut(console, "\n")
		out, code, _ := strings.Cut(runLine(t, command), "exit code ")
		written := before + start + command + "\n" + out + "$ echo $?\n" + code + end + after
		if *update {
			if err := os.WriteFile(file, []byte(written), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if written != string(document) {
			t.Errorf("%s does not show the output of its command; run this test with -update and review the difference", file)
		}
	}
}

// The help shows these texts. Flags of kubectl keep their own.
func TestEveryCommandAndFlagHasHelp(t *testing.T) {
	kubectls := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(kubectls)
	var describe func(command *cobra.Command)
	describe = func(command *cobra.Command) {
		path := command.CommandPath()
		help, _ := runPlugin(t, nil, append(strings.Fields(path)[2:], "--help")...)
		for line := range strings.Lines(strings.ReplaceAll(help, command.Example, "")) {
			if words := strings.Fields(line); len(line) > 101 && len(words) > 1 && !strings.Contains(line, "://") && !strings.HasPrefix(line, "Flags of") {
				t.Errorf("%s: a line of the help is not wrapped: %q", path, line)
			}
		}
		if command.Short == "" || strings.HasSuffix(command.Short, ".") || strings.Contains(command.Short, "\n") {
			t.Errorf("%s: Short must be one line without a full stop: %q", path, command.Short)
		}
		if !strings.HasSuffix(strings.TrimSpace(command.Long), ".") {
			t.Errorf("%s: Long must end with a full stop: %q", path, command.Long)
		}
		if !strings.Contains(command.Example, command.CommandPath()) {
			t.Errorf("%s: Example must call the command: %q", path, command.Example)
		}
		command.Flags().VisitAll(func(f *pflag.Flag) {
			if kubectls.Lookup(f.Name) == nil && (len(strings.Fields(f.Usage)) < 2 || strings.HasSuffix(f.Usage, ".")) {
				t.Errorf("%s: --%s needs a usage of several words without a full stop: %q", path, f.Name, f.Usage)
			}
		})
		for _, below := range command.Commands() {
			describe(below)
		}
	}
	describe(newPlugin(noon))
}

func TestCompletionWithoutCluster(t *testing.T) {
	types := []string{"pod/", "job/", "cronjob/", "policy/", "clusterpolicy/"}
	for line, want := range map[string][]string{
		"":                              {"check", "explain", "finish", "help", "lint", "test", "version"},
		"explain ":                      types,
		"explain po":                    types, // the shell drops those that do not fit
		"finish ":                       types[:2],
		"explain job/":                  {},
		"explain policy a":              {},
		"explain --output ":             {"table", "json", "yaml"},
		"lint -o ":                      {"table", "json", "yaml", "name", "policy", "github", "junit", "sarif"},
		"lint ":                         {},
		"lint -f ":                      {"yaml", "yml", "json"}, // of files
		"lint --fail-":                  {"--fail-on"},
		"lint --pod-phase ":             {"Enabled", "LastResort", "Disabled"},
		"explain --node-kind ":          {"Read", "Real", "Daemonless", "Virtual", "Unknown"},
		"finish pod/a --mode ":          {"PodPhase", "Image"},
		"check --context ":              {},
		"check --operator-namespace si": {},
	} {
		out, code := runPlugin(t, nil, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		got := []string{}
		for text := range strings.Lines(out) {
			if strings.HasPrefix(text, ":") {
				break
			}
			got = append(got, strings.TrimSpace(text))
		}
		if diff := cmp.Diff(want, got); diff != "" || code != 0 {
			t.Errorf("%q, exit code %d (-want +got):\n%s", line, code, diff)
		}
	}
}
