//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// mainEnd is how the main container of a cell ends.
type mainEnd string

const (
	mainSucceeds mainEnd = "succeeds"
	mainFails    mainEnd = "fails"
)

// sidecarEnd is how the sidecar of a cell behaves.
type sidecarEnd string

const (
	exitsZero   sidecarEnd = "exits 0 on TERM"
	exitsSeven  sidecarEnd = "exits 7 on TERM"
	ignoresTerm sidecarEnd = "ignores TERM"
	exitedZero  sidecarEnd = "has exited 0"
	exitedSeven sidecarEnd = "has exited 7"
	crashLoops  sidecarEnd = "crash-loops"
	unpullable  sidecarEnd = "image cannot be pulled"
)

var sidecarEnds = []sidecarEnd{exitsZero, exitsSeven, ignoresTerm, exitedZero, exitedSeven, crashLoops, unpullable}

// cell is one combination of the outcome matrix.
type cell struct {
	restartPolicy corev1.RestartPolicy
	main          mainEnd
	sidecar       sidecarEnd
	column        matrixColumn
	// native says that the pod also has a native sidecar.
	native bool
}

// cells returns every combination, in the order of the table.
func cells() []cell {
	var all []cell
	for _, restartPolicy := range jobRestartPolicies {
		for _, main := range []mainEnd{mainSucceeds, mainFails} {
			for _, sidecar := range sidecarEnds {
				for _, column := range columns {
					all = append(all, cell{restartPolicy: restartPolicy, main: main, sidecar: sidecar, column: column})
				}
			}
		}
	}
	return all
}

// isBasic reports whether each test run includes the cell.
func (c cell) isBasic() bool {
	switch {
	case c.column == columnNative, c.column == columnAuto && c.sidecar != exitsSeven:
		return false
	case c.main == mainSucceeds && c.restartPolicy == corev1.RestartPolicyNever:
		return true
	default:
		return c.sidecar == exitsSeven || c.main == mainSucceeds && c.sidecar == crashLoops
	}
}

func (c cell) String() string {
	return fmt.Sprintf("%s, main %s, sidecar %s, %s, further native sidecar %t", c.restartPolicy, c.main, c.sidecar, c.column, c.native)
}

// In every combination of a pod that starts and whose main container ends, that container decides the Job's outcome.
func TestOutcomeMatrix(t *testing.T) {
	sharedUnlessLong(t)
	run := newMatrixRun(t, func(spec *v1alpha1.PolicySpec) { spec.TerminationDeadlineSeconds = ptr.To[int32](10) })
	var all []cell
	if testenv.Long() {
		all = cells()
		for _, c := range cells() {
			c.native = true
			all = append(all, c)
		}
	} else {
		all = slices.DeleteFunc(cells(), func(c cell) bool { return !c.isBasic() })
	}
	t.Run("cells", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				if c.needsOwnRestartPolicy() && !harness.Within(t, run.Test).KubeletIsAtLeast(restartsContainersByOwnPolicy) {
					t.Skip("Needs a kubelet of Kubernetes " + restartsContainersByOwnPolicy + " or later, which acts on container restartPolicy")
				}
				run.require(t, c, fmt.Sprintf("cell-%03d", i))
			})
		}
	})
	if testenv.Long() && !t.Failed() {
		run.RequireSection("docs/outcome-matrix.md", "matrix", matrixTable())
	}
}

// require runs the cell's Job and requires its outcome.
func (m *matrixRun) require(t *testing.T, c cell, name string) {
	t.Helper()
	got := m.run(t, c.job(name), c.column, 0)
	got = outcome{job: got.job, pod: got.pod, runs: got.runs}
	expected, exception := c.expect()
	m.Recorder.Look(func(seen harness.Seen) {
		if !exception.holds(got, expected) {
			t.Errorf("The outcome is %+v, want %+v or %+v: %s", got, expected, exception, seen.Describe(name))
		}
		for _, record := range seen.Pods(name) {
			if exception == restartedUntilFailed && attempted(seen, record) {
				t.Errorf("The operator acted on pod %s although its main container can restart", record.Pod.Name)
			}
		}
	})
}

// matrixTable returns the table of the outcomes.
func matrixTable() string {
	table := newTable("restartPolicy", "main", "sidecar")
	for i, c := range cells() {
		if i%len(columns) == 0 {
			fmt.Fprintf(&table.Builder, "| %s | %s | %s |", c.restartPolicy, c.main, c.sidecar)
		}
		expected, exception := c.expect()
		if exception != nil {
			expected = exception.outcome
		}
		words := expected.job
		if expected.pod == "Deleted" {
			words += ", deleted"
		}
		table.cell(words, exception)
		if i%len(columns) == len(columns)-1 {
			table.WriteString("\n")
		}
	}
	return joinRows(table.String(), 2)
}

// job returns the cell's Job. Its backoffLimit lets a failed pod fail its Job under Never, a failing main container run twice, and a
// sidecar crash.
func (c cell) job(name string) *batchv1.Job {
	mainScript, backoffLimit := "sleep 3", int32(20)
	if c.main == mainFails {
		mainScript, backoffLimit = "sleep 3; exit 1", 1
	}
	if c.restartPolicy == corev1.RestartPolicyNever {
		backoffLimit = 0
	}
	job := harness.Job(name, c.restartPolicy, c.sidecarContainer(), harness.Container(harness.MainName, mainScript))
	job.Spec.BackoffLimit = &backoffLimit
	harness.ReportStart(&job.Spec.Template.Spec)
	if c.native {
		native := harness.Container("native", harness.ExitsZeroOnTerm)
		native.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		job.Spec.Template.Spec.InitContainers = []corev1.Container{native}
	}
	return job
}

func (c cell) sidecarContainer() corev1.Container {
	container := harness.Sidecar(map[sidecarEnd]string{
		exitsZero: harness.ExitsZeroOnTerm, exitsSeven: harness.ExitsSevenOnTerm, ignoresTerm: harness.IgnoresTerm,
		exitedZero: harness.ExitsDuringMain(0), exitedSeven: harness.ExitsDuringMain(7), crashLoops: harness.CrashLoops(),
	}[c.sidecar])
	if c.sidecar == unpullable {
		container.Image, container.ImagePullPolicy = missingImage, corev1.PullNever
	}
	if c.needsOwnRestartPolicy() {
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyOnFailure)
	}
	return container
}

// needsOwnRestartPolicy reports whether the sidecar crashes repeatedly only with its own restartPolicy. A native one has it.
func (c cell) needsOwnRestartPolicy() bool {
	return c.column != columnNative && c.sidecar == crashLoops && c.restartPolicy == corev1.RestartPolicyNever
}

// Outcomes that depend only on the main container.
var (
	complete = outcome{job: "Complete", pod: string(corev1.PodSucceeded), runs: 1}
	failed   = outcome{job: "Failed", pod: string(corev1.PodFailed), runs: 1}
)

// Outcomes that Kubernetes decides before the operator can act.
var (
	restartedUntilFailed = &exception{
		note: "The kubelet restarts a failed main container, so the main container is never done and the operator does not act. " +
			"The Job controller fails the Job and deletes the pod when its container restarts reach backoffLimit (1).",
		outcome: outcome{job: "Failed", pod: "Deleted"},
		anyRuns: true,
	}
	blockedBySidecar = &exception{
		note:    "The main container waits until its native sidecars have started. The Job neither completes nor fails.",
		outcome: outcome{job: neverStarts, pod: string(corev1.PodPending)},
	}
)

// expect returns the outcome that the main container decides, and the exception or nil.
func (c cell) expect() (outcome, *exception) {
	native := c.column == columnNative
	expected := complete
	if c.main == mainFails {
		expected = failed
	}
	switch {
	case native && c.sidecar == unpullable:
		return expected, blockedBySidecar
	case c.main == mainFails && c.restartPolicy == corev1.RestartPolicyOnFailure:
		return expected, restartedUntilFailed
	default:
		return expected, nil
	}
}

// Restarts of a native sidecar count, also those after exit code 0.
func TestNativeRestartsReachBackoffLimit(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Shared(t)
	run := newMatrixRun(t, func(*v1alpha1.PolicySpec) {})
	for _, exitCode := range []int{0, 7} {
		t.Run(fmt.Sprint(exitCode), func(t *testing.T) {
			t.Parallel()
			// The kubelet of a busy node may restart the sidecar late.
			job := harness.Job(fmt.Sprintf("exits-%d", exitCode), corev1.RestartPolicyOnFailure,
				harness.Sidecar(harness.ExitsDuringMain(exitCode)), harness.Main(60))
			job.Spec.BackoffLimit = ptr.To[int32](1)
			harness.ReportStart(&job.Spec.Template.Spec)
			if got := run.run(t, job, columnNative, 0); got.job != "Failed" || got.reason != batchv1.JobReasonBackoffLimitExceeded {
				t.Errorf("The outcome is %+v, want Failed by backoffLimit", got)
			}
		})
	}
}
