// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/cli/exit"
	"github.com/sidecar-termination/operator/cli/source"
)

// everything matches every case.
var everything = regexp.MustCompile("")

const header = "apiVersion: cli.sidecartermination.dev/v1alpha1\nkind: PolicyTest\n"

// objects are a policy and a pod, inline.
const objects = `objects:
  - apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: mesh, namespace: default}
    spec: {podSelector: {}, sidecars: [{name: proxy}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: job}
    spec: {restartPolicy: OnFailure, containers: [{name: main, image: app}, {name: proxy, image: proxy}]}
`

func run(tb testing.TB, arguments ...string) (string, int) {
	tb.Helper()
	var out bytes.Buffer
	command := New(source.Program{Name: "kubectl sidecar-termination", Now: time.Now})
	command.SilenceUsage, command.SilenceErrors = true, true
	command.SetArgs(arguments)
	command.SetOut(&out)
	command.SetErr(&out)
	code := exit.Report(&out, command.ExecuteContext(tb.Context()))
	return out.String(), code
}

// write writes a test file and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a_test.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// errorsOf returns the errors of a test file with the content.
func errorsOf(t *testing.T, content string) []string {
	t.Helper()
	path := write(t, content)
	r := (&options{program: source.Program{Now: time.Now}}).runFile(t.Context(), path, everything)
	if len(r.Cases) > 0 {
		t.Errorf("an invalid file has the cases %v", r.Cases)
	}
	return strings.Split(strings.ReplaceAll(r.Error, filepath.Dir(path), "DIR"), "\n")
}

func TestInvalidFiles(t *testing.T) {
	fields := "; docs/guides/testing-policies.md lists the fields"
	minimal := header + objects + "cases:\n- name: a\n  expect: {mode: None}\n"
	for name, tc := range map[string]struct {
		content string
		want    []string
	}{
		"empty":         {"", []string{"it has 0 YAML documents; a test file has one"}},
		"two documents": {minimal + "---\n" + minimal, []string{"it has 2 YAML documents; a test file has one"}},
		"other kind": {"apiVersion: v1\nkind: Pod\n", []string{
			`apiVersion is "v1" and kind is "Pod"; a test file has apiVersion: cli.sidecartermination.dev/v1alpha1 and kind: PolicyTest`,
		}},
		"no case":        {header + "cases: []\n", []string{"cases: there is no case"}},
		"repeated field": {header + "cases: []\ncases: []\n", []string{"yaml: unmarshal errors:", `  line 4: key "cases" already set in map`}},
		"unknown fields": {header + "policies: []\ncases: []\n", []string{"policies: unknown field" + fields}},
		"unknown fields of cases": {header + "cases: [{name: a}, {name: b, expect: {rol: x, containers: {main: {rle: x}}}}]\n", []string{
			"cases[1].expect.containers.main.rle: unknown field" + fields, "cases[1].expect.rol: unknown field" + fields,
		}},
		"wrong types": {header + "cases: [{name: 1}, {elapsedSeconds: soon}, {containers: []}, {attempts: {}}, {cluster: {openKruise: 1}}, []]\n", []string{
			"cases[0].name: is of type number; it must be a string", "cases[1].elapsedSeconds: is of type string; it must be an integer",
			"cases[2].containers: is of type array; it must be an object", "cases[3].attempts: is of type object; it must be a list",
			"cases[4].cluster.openKruise: is of type number; it must be true or false", "cases[5]: is of type array; it must be an object",
		}},
		"names": {header + "cases: [{name: a}, {}, {name: a}]\n", []string{"cases[1].name: set a name", `cases[2].name: another case is called "a"`}},
		"no manifest": {header + "manifests: [none.yaml, .]\ncases: [{name: a}]\n", []string{
			"manifests[0]: read DIR/none.yaml: stat DIR/none.yaml: no such file or directory", "manifests[1]: read DIR: it is a directory; name its files",
		}},
		"no workload": {header + "cases: [{name: a}]\n", []string{
			"cases[0].workload: there is no workload in the manifests; Pods, Jobs and CronJobs there: none",
		}},
		"other workload": {header + objects + "cases: [{name: a, workload: Job/a}]\n", []string{
			"cases[0].workload: there is no Job/a in the manifests; Pods, Jobs and CronJobs there: Pod/default/job",
		}},
		"several workloads": {header + objects + "  - {apiVersion: v1, kind: Pod, metadata: {name: job, namespace: b}, spec: {containers: [{name: a}]}}\ncases: [{name: a}, {name: b, workload: Pod/job}]\n", []string{
			"cases[0].workload: set it to one of Pod/default/job, Pod/b/job", "cases[1].workload: set it to one of Pod/default/job, Pod/b/job",
		}},
		"nothing compared":  {header + objects + "cases: [{name: a, expect: {containers: {main: {}}}}]\n", []string{"cases[0].expect: names nothing to compare"}},
		"unknown node":      {header + objects + "cases: [{name: a, node: Moon, expect: {mode: None}}]\n", []string{`cases[0].node: is "Moon"; it must be Real, Daemonless, Virtual, Unknown or None`}},
		"flag":              {header + objects + "cases: [{name: a, cluster: {operatorFlags: [--no]}, expect: {mode: None}}]\n", []string{"cases[0].cluster.operatorFlags: unknown flag: --no"}},
		"flag of processes": {header + objects + "cluster: {operatorFlags: [--leader-elect]}\ncases: [{name: a, expect: {mode: None}}]\n", []string{"cases[0].cluster.operatorFlags: unknown flag: --leader-elect"}},
		"not a flag":        {header + objects + "cases: [{name: a, cluster: {operatorFlags: [x]}, expect: {mode: None}}]\n", []string{`cases[0].cluster.operatorFlags: "x" is not a flag`}},
		"times": {header + objects + "cases: [{name: a, elapsedSeconds: -1, expect: {mode: None}}, {name: b, elapsedSeconds: 9, attempts: [{mode: PodPhase, startedSeconds: 10, completedSeconds: -1}], expect: {mode: None}}]\n", []string{
			"cases[0].elapsedSeconds: is -1; it must be between 0 and 31536000",
			"cases[1].attempts[0].startedSeconds: is 10; it must be between 0 and 9", "cases[1].attempts[0].completedSeconds: is -1; it must be between 0 and 9",
		}},
		"container states": {header + objects + "cases: [{name: a, containers: {main: {}, proxy: {running: true, started: true}, other: {running: true, waiting: A}}, expect: {mode: None, containers: {x: {role: Main}}}}]\n", []string{
			"cases[0].containers.main: set exactly one of running: true, exitCode and waiting",
			"cases[0].containers.other: the pod has no such container; it has main, proxy",
			"cases[0].containers.other: set exactly one of running: true, exitCode and waiting",
			"cases[0].containers.proxy: started is only for a waiting container",
			"cases[0].expect.containers.x: the pod has no such container; it has main, proxy",
		}},
		"restarts": {header + objects + "cases: [{name: a, containers: {main: {running: true, restarts: -1}}, expect: {mode: None}}]\n", []string{"cases[0].containers.main: restarts is -1; it must not be negative"}},
		"attempts": {header + objects + `cases: [{name: a, expect: {mode: None}, attempts: [{mode: Auto}, {mode: CRR}, {mode: PodPhase, sidecars: [proxy]},
  {mode: CRR, partOf: Image, sidecars: [x], restarts: {proxy: 1}}]}]
`, []string{
			`cases[0].attempts[0].mode: is "Auto"; it must be CRR, Image or PodPhase`,
			"cases[0].attempts[1].sidecars: name the containers that mode CRR ends",
			"cases[0].attempts[2].sidecars: mode PodPhase ends every container; remove the field",
			"cases[0].attempts[3].sidecars[0]: the pod has no such container; it has main, proxy",
			"cases[0].attempts[3].restarts.proxy: the pod has no such container; it has x",
			"cases[0].attempts[3].partOf: only an attempt of mode PodPhase can be part of another one, of mode CRR",
		}},
		"policy with a typo": {header + "objects: [{apiVersion: sidecartermination.dev/v1alpha1, kind: SidecarTerminationPolicy, metadata: {name: mesh}, spec: {podSelector: {}, sidecars: [{name: a, mod: CRR}]}}]\ncases: [{name: a}]\n", []string{
			"DIR/a_test.yaml objects[0]: the API server would reject SidecarTerminationPolicy/mesh: spec.sidecars[0].mod: Forbidden: unknown field",
		}},
		"alias bomb":      {header + aliasBomb("cases"), []string{"its aliases expand to more than 8 MiB; write the values out"}},
		"alias of itself": {header + "cases: &a [*a, '&']\n", []string{"its aliases expand to more than 8 MiB; write the values out"}},
		"long strings":    {header + "a: &a " + strings.Repeat("x", 1<<19) + "\nb: [" + strings.Repeat("*a, ", 1<<10) + "]\n", []string{"its aliases expand to more than 8 MiB; write the values out"}},
		"huge":            {header + strings.Repeat("# comment\n", 1<<17), []string{"it is larger than 1024 KiB; split it"}},
	} {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(tc.want, errorsOf(t, tc.content)); difference != "" {
				t.Errorf("errors (-want +got):\n%s", difference)
			}
		})
	}
}

// aliasBomb returns YAML whose field expands to 10^8 strings.
func aliasBomb(field string) string {
	bomb := "a0: &a0 [x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	return bomb + field + ": *a8\n"
}

// The decoders bound the depth. The command must end with an error, whatever its text.
func TestDeepFilesAreInvalid(t *testing.T) {
	for name, content := range map[string]string{
		"lists":   header + "cases: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "\n",
		"objects": header + "cases: " + strings.Repeat("{a: ", 100_000) + strings.Repeat("}", 100_000) + "\n",
		"inline":  header + "objects: [" + strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000) + "]\ncases: [{name: a}]\n",
		"aliases": header + "b: &b 1\nc: *b\ncases: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if problems := errorsOf(t, content); problems[0] == "" {
				t.Error("there is no error")
			}
		})
	}
}

func TestInvalidManifests(t *testing.T) {
	directory := t.TempDir()
	if err := os.Symlink(os.DevNull, filepath.Join(directory, "device")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"bomb.yaml": aliasBomb("items"), "huge.yaml": strings.Repeat("#\n", 1<<20), "text.yaml": "hello",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"device":    "it is not a regular file",
		"bomb.yaml": "its aliases expand to more than 8 MiB; write the values out",
		"huge.yaml": "it is larger than 1024 KiB; split it",
		"text.yaml": "text.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(directory, "a_test.yaml")
			if err := os.WriteFile(path, []byte(header+"manifests: ["+name+"]\ncases: [{name: a}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, code := run(t, path); code != exit.CodeError || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("exit code %d, want an error with %q:\n%s", code, want, out)
			}
		})
	}
}

func TestCases(t *testing.T) {
	for name, tc := range map[string]struct {
		fields string
		want   []difference
	}{
		"containers run by default":     {"expect: {stage: Waiting, reason: MainContainersRunning}", nil},
		"unset fields are not compared": {"containers: {main: {exitCode: 0}}, expect: {phase: Succeeded}", nil},
		"main may run again":            {"containers: {main: {exitCode: 1}}, expect: {reason: MainContainersRunning}", nil},
		"real node":                     {"containers: {main: {exitCode: 0}}, expect: {mode: PodPhase, containers: {proxy: {mode: PodPhase}, main: {mode: None}}}", nil},
		"OpenKruise":                    {"containers: {main: {exitCode: 0}}, cluster: {openKruise: true}, expect: {mode: CRR, phase: Succeeded}", nil},
		"daemonless node":               {"node: Daemonless, containers: {main: {exitCode: 0}}, cluster: {openKruise: true}, expect: {mode: PodPhase}", nil},
		"unknown node":                  {"node: Unknown, containers: {main: {exitCode: 0}}, expect: {reason: NodeUnknown, mode: None}", nil},
		"no node":                       {"node: None, expect: {reason: PodNotScheduled}", nil},
		"virtual node":                  {"node: Virtual, containers: {main: {exitCode: 0}}, cluster: {operatorFlags: ['--quick-exit-image=q:v1', '--quick-exit-paths=*']}, expect: {mode: Image, phase: None, containers: {proxy: {image: 'q:v1'}, main: {image: None}}}", nil},
		"guarded phase":                 {"containers: {main: {exitCode: 0}}, expect: {mode: PodPhase}", nil},
		"unguarded phase, unstable":     {"containers: {main: {exitCode: 0}}, cluster: {phaseGuard: false}, elapsedSeconds: 1, expect: {reason: Stabilizing, mode: None}", nil},
		"unguarded phase, stable":       {"containers: {main: {exitCode: 0}}, cluster: {phaseGuard: false}, elapsedSeconds: 2, expect: {mode: PodPhase}", nil},
		"sidecar never started":         {"containers: {main: {exitCode: 0}, proxy: {waiting: ImagePullBackOff}}, cluster: {openKruise: true, operatorFlags: [--pod-phase=Disabled]}, expect: {stage: Stuck}", nil},
		"sidecar crashes":               {"containers: {main: {exitCode: 0}, proxy: {waiting: CrashLoopBackOff, restarts: 3}}, cluster: {openKruise: true}, expect: {mode: CRR}", nil},
		"sidecar waits after its start": {"containers: {main: {exitCode: 0}, proxy: {waiting: CrashLoopBackOff, started: true}}, cluster: {openKruise: true}, expect: {mode: CRR}", nil},
		"attempt in progress":           {"phase: Succeeded, containers: {main: {exitCode: 0}}, attempts: [{mode: PodPhase, startedSeconds: 1}], elapsedSeconds: 2, expect: {reason: AttemptInProgress, mode: None}", nil},
		"attempt failed":                {"phase: Succeeded, containers: {main: {exitCode: 0}}, cluster: {openKruise: true}, attempts: [{mode: PodPhase, partOf: CRR}], elapsedSeconds: 600, expect: {reason: Fallback, mode: CRR, phase: None}", nil},
		"sidecar came back":             {"containers: {main: {exitCode: 0}, proxy: {running: true, restarts: 1}}, cluster: {openKruise: true, operatorFlags: [--pod-phase=Disabled]}, attempts: [{mode: CRR, sidecars: [proxy], restarts: {proxy: 0}, completedSeconds: 1}], elapsedSeconds: 2, expect: {stage: Stuck, reason: Stuck, mode: None}", nil},
		"every difference": {
			"containers: {main: {exitCode: 0}}, expect: {stage: A, reason: B, mode: None, phase: Failed, findings: [MayHang], containers: {proxy: {role: Main, declaredBy: None, mode: CRR, image: q}}}",
			[]difference{
				{"stage", "A", "Terminating"}, {"reason", "B", "Terminating"}, {"mode", "None", "PodPhase"}, {"phase", "Failed", "Succeeded"},
				{"findings", "MayHang", "None"},
				{"containers.proxy.role", "Main", "Sidecar"}, {"containers.proxy.declaredBy", "None", "SidecarTerminationPolicy/mesh"},
				{"containers.proxy.mode", "CRR", "PodPhase"}, {"containers.proxy.image", "q", "None"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, header+objects+"cases: [{name: a, "+tc.fields+"}]\n")
			r := (&options{program: source.Program{Now: time.Now}}).runFile(t.Context(), path, everything)
			if r.Error != "" || len(r.Cases) != 1 {
				t.Fatalf("result is %+v", r)
			}
			if difference := cmp.Diff(tc.want, r.Cases[0].Differences); difference != "" {
				t.Errorf("differences (-want +got):\n%s\n%s", difference, r.Cases[0].Decision)
			}
		})
	}
}

// A pod of a cluster keeps its status, its node and its attempts.
func TestPodWithStatus(t *testing.T) {
	path := write(t, header+`objects:
  - apiVersion: sidecartermination.dev/v1alpha1
    kind: ClusterSidecarTerminationPolicy
    metadata: {name: mesh}
    spec: {podSelector: {}, sidecars: [{name: proxy, drainSeconds: 10}]}
  - {apiVersion: v1, kind: Node, metadata: {name: virtual, labels: {type: virtual-kubelet}}}
  - apiVersion: v1
    kind: Pod
    metadata: {name: job, namespace: batch}
    spec: {nodeName: virtual, restartPolicy: Never, containers: [{name: main, image: app}, {name: proxy, image: proxy}]}
    status:
      phase: Running
      containerStatuses:
        - {name: main, containerID: "c://main", state: {terminated: {exitCode: 0, finishedAt: "2020-03-01T12:00:00Z"}}}
        - {name: proxy, containerID: "c://proxy", state: {running: {startedAt: "2020-03-01T11:00:00Z"}}}
cases:
  - {name: drains, elapsedSeconds: 9, expect: {reason: Draining, containers: {proxy: {declaredBy: ClusterSidecarTerminationPolicy/mesh}}}}
  - {name: virtual node of the manifest, elapsedSeconds: 10, expect: {stage: Stuck, reason: NoUsableMode}}
  - {name: other node, node: Real, elapsedSeconds: 10, expect: {mode: PodPhase}}
  - {name: other state, containers: {main: {running: true}}, expect: {reason: MainContainersRunning}}
`)
	if out, code := run(t, path); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestDiscovery(t *testing.T) {
	directory := t.TempDir()
	t.Chdir(directory)
	for _, name := range []string{"b_test.yaml", "a/z_test.yaml", "a/deep/er/y_test.yaml", "a/policy.yaml", "a/test.yml", ".git/c_test.yaml", "empty/x.yaml"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", "link"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		arguments, want []string
		problem         string
	}{
		"directory":              {[]string{"."}, []string{"a/deep/er/y_test.yaml", "a/z_test.yaml", "b_test.yaml"}, ""},
		"file and its directory": {[]string{"./b_test.yaml", "."}, []string{"b_test.yaml", "a/deep/er/y_test.yaml", "a/z_test.yaml"}, ""},
		"any file":               {[]string{"a/test.yml"}, []string{"a/test.yml"}, ""},
		"hidden directory":       {[]string{".git"}, []string{".git/c_test.yaml"}, ""},
		"linked directory":       {[]string{"link"}, []string{"link/deep/er/y_test.yaml", "link/z_test.yaml"}, ""},
		"no test file":           {[]string{".", "empty"}, nil, "find test files: no file below empty ends in _test.yaml"},
		"no such file":           {[]string{"none"}, nil, "find test files: stat none: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := discover(tc.arguments)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if difference := cmp.Diff([]any{tc.want, tc.problem}, []any{got, problem}); difference != "" {
				t.Errorf("files and error (-want +got):\n%s", difference)
			}
		})
	}
}

// CI systems parse the XML. It keeps every name, and has no character that XML forbids.
func TestJUnitIsWellFormed(t *testing.T) {
	path := write(t, header+objects+`cases:
  - {name: "a\e\u0085<&>]]>\"", expect: {stage: "\u0007\ufffe"}}
  - {name: b, expect: {stage: Waiting}}
`)
	out, code := run(t, path, filepath.Dir(path), "-o", "junit")
	var report junitReport
	if err := xml.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if code != exit.CodeProblem || report.Tests != 2 || report.Failures != 1 || report.Errors != 0 || len(report.Suites) != 1 {
		t.Errorf("exit code %d, report %+v", code, report)
	}
	if got, want := report.Suites[0].Cases[0].Name, `a\u001b\u0085<&>]]>"`; got != want {
		t.Errorf("name is %q, want %q", got, want)
	}
}

// BenchmarkCases runs 1,000 cases: in one file, and in 100 files with the same manifests.
func BenchmarkCases(b *testing.B) {
	for _, files := range []int{1, 100} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			directory := b.TempDir()
			for i := range files {
				var content strings.Builder
				content.WriteString(header + objects + "cases:\n")
				for j := range 1000 / files {
					fmt.Fprintf(&content, "- {name: case %d, containers: {main: {exitCode: 0}, proxy: {running: true, restarts: %d}}, expect: {stage: Terminating, mode: PodPhase, containers: {proxy: {role: Sidecar}}}}\n", j, j)
				}
				if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("%d_test.yaml", i)), []byte(content.String()), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if out, code := run(b, directory); code != 0 || !strings.Contains(out, "Ran 1000 cases") {
					b.Fatalf("exit code %d:\n%s", code, out)
				}
			}
		})
	}
}
