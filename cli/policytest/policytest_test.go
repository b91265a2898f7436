// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/cli/output"
)

const header = "apiVersion: cli.sidecartermination.dev/v1alpha1\nkind: PolicyTest\n"

// objects are a policy and a pod of a cluster, inline.
const objects = `objects:
  - apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: mesh, namespace: default}
    spec: {podSelector: {}, enforcement: DryRun, sidecars: [{name: proxy, drainSeconds: 5}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: job}
    spec: {restartPolicy: OnFailure, containers: [{name: main, image: app}, {name: proxy, image: proxy}]}
    status: {phase: Succeeded, containerStatuses: [{name: main, state: {terminated: {exitCode: 0}}}]}
cluster: {enforceDryRun: true}
`

const workflow = `objects:
  - {apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {generateName: w-}, spec: {templates: [{container: {}}, {container: {}}]}}
`

// runFiles runs the command with files or other arguments, and returns its output without line breaks within sentences, and its exit code.
func runFiles(t *testing.T, files ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	command := New(time.Now)
	command.SilenceUsage, command.SilenceErrors = true, true
	command.SetArgs(files)
	command.SetOut(&out)
	command.SetErr(&out)
	code := output.Report(&out, command.ExecuteContext(t.Context()))
	return strings.Join(strings.Fields(out.String()), " "), code
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a_test.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDirectories(t *testing.T) {
	directory := t.TempDir()
	below := filepath.Join(directory, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{directory: directory + " has no file *_test.yaml", filepath.Join(directory, "none"): "no such file"} {
		if got, code := runFiles(t, name); code != 2 || !strings.Contains(got, want) {
			t.Errorf("exit code %d, want 2 and %q, got:\n%s", code, want, got)
		}
	}
	test := header + objects + "cases: [{name: a, expect: {containers: {main: {role: Main}}}}]\n"
	for _, file := range []string{filepath.Join(below, "b_test.yaml"), filepath.Join(directory, "a_test.yaml"), filepath.Join(directory, "policy.yaml")} {
		if err := os.WriteFile(file, []byte(test), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, code := runFiles(t, directory); code != 0 || !strings.Contains(got, "Cases: 2 passed, 0 failed. Invalid files: 0") {
		t.Errorf("exit code %d:\n%s", code, got)
	}
}

func TestRunSelectsCases(t *testing.T) {
	path := write(t, header+objects+"cases: [{name: one, expect: {containers: {main: {role: Main}}}}, {name: two, expect: {containers: {main: {role: Sidecar}}}}]\n")
	for name, tc := range map[string]struct {
		only, want string
		code       int
	}{
		"passing case":      {"^one", "Cases: 1 passed, 0 failed.", 0},
		"failing case":      {"two", "Cases: 0 passed, 1 failed.", 1},
		"no case":           {"three", `--run: no case has a name that matches "three"`, 2},
		"not an expression": {"(", "--run: error parsing regexp", 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got, code := runFiles(t, path, "--run="+tc.only); code != tc.code || !strings.Contains(got, tc.want) {
				t.Errorf("exit code %d, want %d and %q, got:\n%s", code, tc.code, tc.want, got)
			}
		})
	}
}

func TestInvalidFiles(t *testing.T) {
	bomb := "b0: &b0 [" + strings.Repeat("x, ", 8) + "]\n"
	for i := range 8 {
		bomb += strings.NewReplacer("N", string(rune('1'+i)), "M", string(rune('0'+i))).Replace("bN: &bN [*bM, *bM, *bM, *bM, *bM, *bM, *bM, *bM]\n")
	}
	compares := "expect: {findings: [A]}"
	for name, tc := range map[string]struct{ content, want string }{
		"empty":             {"", `apiVersion is "" and kind is ""`},
		"other kind":        {"apiVersion: v1\nkind: Pod\n", `apiVersion is "v1" and kind is "Pod"; a test file has apiVersion: cli.sidecartermination.dev/v1alpha1 and kind: PolicyTest`},
		"two documents":     {header + "cases: []\n---\n" + header, "it has several YAML documents"},
		"no case":           {header + "cases: []\n", "it has 0 cases"},
		"many cases":        {header + "cases: [" + strings.Repeat("{},", maxCases+1) + "]\n", "it has 1001 cases"},
		"repeated field":    {header + "cases: []\ncases: []\n", `key "cases" already set`},
		"unknown field":     {header + "policies: []\ncases: []\n", `unknown field "policies"`},
		"unknown case":      {header + "cases: [{name: a}, {name: b, expect: {rol: x}}]\n", `cases[1]: unknown field "expect.rol"`},
		"wrong type":        {header + "cases: [{name: 1}]\n", "cases[0]: json: cannot unmarshal number into Go struct field testCase.name of type string"},
		"no name":           {header + "cases: [{}]\n", "cases[0].name: set a name"},
		"no manifest":       {header + "manifests: [none.yaml]\ncases: [{name: a}]\n", "manifests[0]: read "},
		"directory":         {header + "manifests: [.]\ncases: [{name: a}]\n", "it must be a regular file of at most 1024 KiB"},
		"large file":        {strings.Repeat("#", maxFileBytes+1), "it must be a regular file of at most 1024 KiB"},
		"expanded aliases":  {header + bomb, "document contains excessive aliasing"},
		"alias of itself":   {header + "cases: &a [*a]\n", "anchor 'a' value contains itself"},
		"no workload":       {header + "cases: [{name: a}]\n", `cases[0].workload: 0 match ""; set it to one of: None`},
		"other workload":    {header + objects + "cases: [{name: a, workload: Job/a}]\n", `cases[0].workload: 0 match "Job/a"; set it to one of: Pod/default/job`},
		"two templates":     {header + workflow + "cases: [{name: a, workload: Workflow/w-*}]\n", "set it to one of: Workflow/default/w-* spec.templates[0], Workflow/default/w-* spec.templates[1]"},
		"other container":   {header + objects + "cases: [{name: a, expect: {containers: {x: {role: Main}}}}]\n", "cases[0].expect.containers.x: the pod has no such container"},
		"other field":       {header + objects + "cases: [{name: a, expect: {containers: {main: {rol: Main}}}}]\n", "cases[0].expect.containers.main.rol: unknown field"},
		"nothing compared":  {header + objects + "cases: [{name: a, expect: {containers: {main: {}}}}]\n", "cases[0].expect: names nothing to compare"},
		"unknown node":      {header + objects + "cases: [{name: a, node: Moon, " + compares + "}]\n", `cases[0].node: is "Moon"; it must be Real, Daemonless or Virtual`},
		"flag of processes": {header + objects + "cases: [{name: a, cluster: {operatorFlags: [--leader-elect]}, " + compares + "}]\n", "cases[0].cluster.operatorFlags: unknown flag: --leader-elect"},
		"not a flag":        {header + objects + "cases: [{name: a, cluster: {operatorFlags: [x]}, " + compares + "}]\n", `cases[0].cluster.operatorFlags: "x" is not a flag`},
	} {
		t.Run(name, func(t *testing.T) {
			got, code := runFiles(t, write(t, tc.content))
			if !strings.Contains(got, tc.want) || !strings.Contains(got, "Cases: 0 passed, 0 failed. Invalid files: 1") || code != 2 {
				t.Errorf("exit code %d, want an error with %q, got:\n%s", code, tc.want, got)
			}
		})
	}
}

// TestRepository runs the tests of the repository's samples and presets, and requires that every policy there has one.
func TestRepository(t *testing.T) {
	files := filesOf(t, "*/tests/*_test.yaml")
	if out, code := runFiles(t, files...); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	tested := sets.New[string]()
	for _, file := range files {
		test, err := load(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range test.Manifests {
			tested.Insert(filepath.Join(filepath.Dir(file), name))
		}
	}
	policies := 0
	for _, path := range slices.Concat(filesOf(t, "samples/*.yaml"), filesOf(t, "presets/*/*.yaml")) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.yaml") || !strings.Contains(string(content), "SidecarTerminationPolicy\nmetadata:") {
			continue
		}
		policies++
		if !tested.Has(path) {
			t.Errorf("no test file names %s", path)
		}
	}
	if policies < 18 {
		t.Errorf("found only %d policies", policies)
	}
}

// filesOf returns the files of config that match the pattern.
func filesOf(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob("../../config/" + pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
