// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/internal/cli/exit"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminal"
)

var update = flag.Bool("update", false, "write the golden files and the outputs in the documentation anew")

// noon is when the tests take place.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// runPlugin runs the plugin of kubectl as a user would, and returns all that it writes, and its exit code.
func runPlugin(t *testing.T, stdin []byte, arguments ...string) (string, int) {
	t.Helper()
	// A test must not reach a cluster that happens to be there.
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out bytes.Buffer
	command := newPlugin(noon)
	command.SetArgs(arguments)
	command.SetIn(bytes.NewReader(stdin))
	command.SetOut(&out)
	command.SetErr(&out)
	code := exit.Report(&out, command.ExecuteContext(t.Context()))
	return out.String(), code
}

// TestOutputs compares what the commands write with testdata/cli/NAME.txt, whose first line is the command line and whose
// last one the exit code. Files are those in testdata/cli. Run with -update to write them anew, and read the difference.
func TestOutputs(t *testing.T) {
	t.Chdir("testdata/cli")
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
			if escaped := terminal.EscapeLines(got); got != escaped {
				t.Errorf("control characters reach the terminal: %s", firstDifference(strconv.QuoteToASCII(got), strconv.QuoteToASCII(escaped)))
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(golden) && !*update {
				t.Errorf("run this test with -update and read the difference; the first one is\n%s", firstDifference(got, string(golden)))
			}
		})
	}
}

func TestLogsHaveNoControlCharacters(t *testing.T) {
	for _, encoder := range []string{"json", "console"} {
		t.Run(encoder, func(t *testing.T) {
			o := defaultOptions()
			flags := pflag.NewFlagSet("operator", pflag.ContinueOnError)
			o.bind(flags)
			if err := flags.Parse([]string{"--zap-encoder=" + encoder}); err != nil {
				t.Fatal(err)
			}
			const hostile = "a\x1b]0;owned\x07\u009b\u202e\x7f"
			var out bytes.Buffer
			o.newLogger(&out).Error(errors.New(hostile), hostile, "pod", hostile)
			if got := out.String(); got != terminal.EscapeLines(got) || strings.Count(got, `\u202e`) != 3 {
				t.Errorf("the log has control characters: %q", got)
			}
			if encoder == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("the log is no JSON: %s", out.String())
			}
		})
	}
}

func firstDifference(got, want string) string {
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			return "got:  " + gotLines[i] + "\nwant: " + wantLines[i]
		}
	}
	return "that one is longer"
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

// TestDocumentedOutputs runs the commands in docs/cli.md that look at files, and compares what they write.
func TestDocumentedOutputs(t *testing.T) {
	const file, start, end = "docs/cli.md", "```console\n", "```\n"
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	blocks := strings.Split(string(document), start)
	written.WriteString(blocks[0])
	for _, block := range blocks[1:] {
		console, rest, _ := strings.Cut(block, end)
		command, _, _ := strings.Cut(console, "\n")
		output := runLine(t, command)
		code := strings.LastIndex(output, "exit code ")
		written.WriteString(start + command + "\n" + output[:code] + "$ echo $?\n" + strings.TrimPrefix(output[code:], "exit code ") + end + rest)
	}
	if *update {
		if err := os.WriteFile(file, []byte(written.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if written.String() != string(document) {
		t.Errorf("%s does not show what the commands write; run this test with -update and read the difference", file)
	}
	if len(blocks) < 3 {
		t.Errorf("%s shows %d outputs", file, len(blocks)-1)
	}
}

func TestTheProgramIsWhatItIsCalled(t *testing.T) {
	for program, want := range map[string]string{
		"/sidecar-termination-operator":                 "sidecar-termination-operator",
		"/usr/local/bin/kubectl-sidecar_termination":    "kubectl sidecar-termination",
		"C:/kubectl-sidecar_termination.exe":            "kubectl sidecar-termination",
		"/usr/bin/kubectl_complete-sidecar_termination": "kubectl sidecar-termination",
	} {
		command := commandFor(program)
		if got := command.DisplayName(); got != want {
			t.Errorf("%s: got %q, want %q", program, got, want)
		}
		for _, name := range []string{"explain", "lint", "check"} {
			if found, _, err := command.Find([]string{name}); err != nil || found.Name() != name {
				t.Errorf("%s has no subcommand %s: %v", program, name, err)
			}
		}
	}
}

func TestDecisionsOfTheOperatorsFlags(t *testing.T) {
	settings, err := parseDecisions([]string{
		"--leader-elect", "--quick-exit-image=quick-exit:v1", "--quick-exit-paths=/app/server", "--pod-phase=LastResort", "--env-convention=Disabled",
		"--pod-phase-max-grace-period=2h",
		"--virtual-node-taint=example/virtual", "--daemonless-node-label=bare", "--flag-of-another-version=1", "--metrics-bind-address", ":1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if settings.Resolve.Image != "quick-exit:v1" || settings.Resolve.QuickExitPaths.String() != "/app/server" || !settings.Resolve.IgnoreEnv ||
		settings.Capabilities.PodPhase != plan.PodPhaseLastResort || settings.Capabilities.MaxGracePeriod != 2*time.Hour ||
		!slices.Contains(settings.NodeMarks.Virtual.Taints, "example/virtual") ||
		!slices.Contains(settings.NodeMarks.Daemonless.Labels, plan.LabelMatch{Key: "bare"}) {
		t.Errorf("settings are %+v", settings)
	}
	if _, err := parseDecisions([]string{"--pod-phase=Sometimes"}); err == nil {
		t.Error("a flag without meaning was accepted")
	}
}

func TestTheLeaseOfTheOperatorsFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      explain.LeaseSettings
	}{
		"by default":                      {nil, explain.LeaseSettings{Name: leaseName}},
		"in a namespace of its own":       {[]string{"--leader-election-namespace=leases"}, explain.LeaseSettings{Name: leaseName, Namespace: "leases"}},
		"where every copy is to act":      {[]string{"--leader-elect=false"}, explain.LeaseSettings{}},
		"where every copy acts, anywhere": {[]string{"--leader-elect=false", "--leader-election-namespace=leases"}, explain.LeaseSettings{}},
	} {
		t.Run(name, func(t *testing.T) {
			settings, err := parseDecisions(tc.arguments)
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(tc.want, settings.Lease); difference != "" {
				t.Errorf("lease (-want +got):\n%s", difference)
			}
		})
	}
}

// runOperator runs the operator's program as a user would, where it must not start to watch a cluster.
func runOperator(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out bytes.Buffer
	command := newCommand()
	command.SetArgs(arguments)
	command.SetOut(&out)
	command.SetErr(&out)
	code := exit.Report(&out, command.ExecuteContext(t.Context()))
	return out.String(), code
}

// The plugin's outputs are among those of TestOutputs.
func TestTheOperatorRefusesUnknownCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		output    string
		code      int
	}{
		"a command that is mistyped": {
			[]string{"explian", "job/x", "-n", "batch"},
			"error: unknown command \"explian\" for \"sidecar-termination-operator\"; did you mean explain?\nSee \"sidecar-termination-operator --help\"\n",
			exit.CodeCouldNotLook,
		},
		"a command that is like none": {
			[]string{"status"},
			"error: unknown command \"status\" for \"sidecar-termination-operator\"\nSee \"sidecar-termination-operator --help\"\n",
			exit.CodeCouldNotLook,
		},
		"a flag that the operator does not have": {
			[]string{"--status"}, "error: unknown flag: --status\n", exit.CodeProblem,
		},
	} {
		t.Run(name, func(t *testing.T) {
			output, code := runOperator(t, tc.arguments...)
			if difference := cmp.Diff(tc.output, output); difference != "" || code != tc.code {
				t.Errorf("exit code %d, want %d; output (-want +got):\n%s", code, tc.code, difference)
			}
		})
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: east, cluster: {server: https://east.example}}, {name: west, cluster: {server: https://west.example}}]
users: [{name: reader, user: {token: secret}}]
contexts: [{name: production, context: {cluster: east, user: reader}}, {name: development, context: {cluster: west, user: reader}}]
`

func TestFlagsThatNameSomethingAreCompleted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"--context": "development\nproduction\n",
		"--cluster": "east\nwest\n",
		"--user":    "reader\n",
		// Its clusters do not answer, and files are no answer either.
		"-n":                   "",
		"--operator-namespace": "",
	} {
		for _, command := range []string{"explain", "lint", "check"} {
			t.Run(command+" "+flag, func(t *testing.T) {
				// What is typed goes last, and nothing is typed yet.
				output, code := runPlugin(t, nil, "__complete", command, "--kubeconfig="+file, "--server=http://127.0.0.1:1", flag, "")
				want := want + ":4\nCompletion ended with directive: ShellCompDirectiveNoFileComp\n"
				if difference := cmp.Diff(want, output); difference != "" || code != 0 {
					t.Errorf("exit code %d, output (-want +got):\n%s", code, difference)
				}
			})
		}
	}
}

func TestTheVersionIsThatOfWhatIsInstalled(t *testing.T) {
	plugin, _ := runPlugin(t, nil, "--version")
	operator, _ := runOperator(t, "--version")
	want := "kubectl sidecar-termination version " + release + "\nsidecar-termination-operator version " + release + "\n"
	if difference := cmp.Diff(want, plugin+operator); difference != "" {
		t.Errorf("output (-want +got):\n%s", difference)
	}
	content, err := os.ReadFile("config/default/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if tag := "newTag: " + release + "\n"; !strings.Contains(string(content), tag) {
		t.Errorf("config/default does not have the image of this version, %q", tag)
	}
}

func TestTheVersionIsThatWhichGoKnows(t *testing.T) {
	for built, want := range map[string]string{
		"":        release,
		"(devel)": release,
		"v0.3.0":  "v0.3.0",
		"v0.0.0-20260301120000-589d0926f3a1+dirty": "v0.0.0-20260301120000-589d0926f3a1+dirty",
	} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: built}}); got != want {
			t.Errorf("%q: got %s, want %s", built, got, want)
		}
	}
}

// What --help, completions and the man pages are made of. Flags of kubectl have kubectl's words.
func TestEveryCommandAndFlagIsDescribed(t *testing.T) {
	kubectls := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(kubectls)
	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	new(zap.Options).BindFlags(goFlags)
	kubectls.AddGoFlagSet(goFlags)
	var describe func(command *cobra.Command)
	describe = func(command *cobra.Command) {
		path := command.CommandPath()
		if command.Short == "" || strings.HasSuffix(command.Short, ".") || strings.Contains(command.Short, "\n") {
			t.Errorf("%s: what it does in short, without a full stop, is %q", path, command.Short)
		}
		if !strings.HasSuffix(strings.TrimSpace(command.Long), ".") {
			t.Errorf("%s: what it does at length, in sentences, is %q", path, command.Long)
		}
		if !strings.Contains(command.Example, command.CommandPath()) {
			t.Errorf("%s: its example is %q", path, command.Example)
		}
		command.Flags().VisitAll(func(f *pflag.Flag) {
			if kubectls.Lookup(f.Name) == nil && (len(strings.Fields(f.Usage)) < 2 || strings.HasSuffix(f.Usage, ".")) {
				t.Errorf("%s: --%s is described, without a full stop, as %q", path, f.Name, f.Usage)
			}
		})
		for _, below := range command.Commands() {
			describe(below)
		}
	}
	describe(newPlugin(noon))
	describe(newCommand())
}
