//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
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
	column        v1alpha1.Mode
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

// isBasic reports whether each test run includes the cell. Where TestBehaviours requires more of the same Job, it does not.
func (c cell) isBasic() bool {
	switch {
	case c.column == columnNative, c.column == v1alpha1.ModeAuto && c.sidecar != exitsSeven:
		return false
	case c.restartPolicy == corev1.RestartPolicyNever:
		return c.main == mainSucceeds && c.sidecar != exitsZero
	case c.main == mainSucceeds:
		return c.sidecar == crashLoops
	default:
		return c.sidecar == exitsSeven
	}
}

func (c cell) String() string {
	return fmt.Sprintf("%s, main %s, sidecar %s, %s, further native sidecar %t", c.restartPolicy, c.main, c.sidecar, c.column, c.native)
}

// In every combination of a pod that starts and whose main container ends, that container decides the Job's outcome.
func TestOutcomeMatrix(t *testing.T) {
	if testenv.Long() {
		// All rows together with other tests are more than the node can run.
		harness.Exclusive(t)
	} else {
		harness.Shared(t)
	}
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
				if c.needsOwnRestartPolicy() && !harness.KubeletIsAtLeast(t, restartsContainersByOwnPolicy) {
					t.Skip("Needs a kubelet of Kubernetes " + restartsContainersByOwnPolicy + " or later, which acts on container restartPolicy")
				}
				run.require(t, c, fmt.Sprintf("cell-%03d", i))
			})
		}
	})
}

// require runs the cell's Job and requires its outcome.
func (m *matrixRun) require(t *testing.T, c cell, name string) {
	t.Helper()
	got, want := m.run(t, c.job(name), c.column), c.expect()
	got.reason, got.pods = "", 0
	if want.pod == deletedPod {
		got.runs = 0
	}
	m.Recorder.Look(func(seen harness.Seen) {
		if got != want {
			t.Errorf("The outcome is %+v, want %+v: %s", got, want, seen.Describe(name))
		}
		for _, record := range seen.Pods(name) {
			if want.pod == deletedPod && attempted(seen, record) {
				t.Errorf("The operator acted on pod %s although its main container can restart", record.Pod.Name)
			}
		}
	})
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
		exitedZero: harness.ExitsDuringMain(0, harness.ExitsZeroOnTerm), exitedSeven: harness.ExitsDuringMain(7, harness.ExitsZeroOnTerm),
		crashLoops: harness.ExitsDuringMain(1, "sleep 10; exit 1"),
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

// expect returns the outcome that the main container decides, unless Kubernetes decides before the operator can act. docs/outcome-matrix.md
// has it as a table.
func (c cell) expect() outcome {
	switch {
	case c.column == columnNative && c.sidecar == unpullable:
		// The main container waits until its native sidecars have started.
		return outcome{job: neverStarts, pod: string(corev1.PodPending)}
	case c.main == mainSucceeds:
		return outcome{job: "Complete", pod: string(corev1.PodSucceeded), runs: 1}
	case c.restartPolicy == corev1.RestartPolicyOnFailure:
		// The kubelet restarts a failed main container, until the Job controller deletes the pod because of backoffLimit.
		return outcome{job: "Failed", pod: deletedPod}
	default:
		return outcome{job: "Failed", pod: string(corev1.PodFailed), runs: 1}
	}
}

// A Job whose rule for failures matches exit codes of sidecars has the outcome of its main container, if that succeeds or the rule names it.
func TestOutcomeMatrixFailureRules(t *testing.T) {
	harness.Shared(t)
	run := newMatrixRun(t, func(spec *v1alpha1.PolicySpec) {
		// Avoids fallbacks on a busy node, and after writes that a busy webhook denied.
		spec.TerminationDeadlineSeconds = ptr.To[int32](120)
		if spec.Mode != v1alpha1.ModeAuto {
			spec.Fallback = v1alpha1.FallbackDisabled
		}
	})
	const exits143 = `trap 'exit 143' TERM; sleep 3600 & wait`
	state := t.TempDir()
	for i, row := range []struct {
		name          string
		action        batchv1.PodFailurePolicyAction
		ofMain        bool
		main, sidecar string
		pods          int
	}{
		{"FailJob, sidecar killed", batchv1.PodFailurePolicyActionFailJob, false, "sleep 1", harness.IgnoresTerm, 1},
		{"FailIndex", batchv1.PodFailurePolicyActionFailIndex, false, "sleep 1", exits143, 2},
		// The second run outlasts the end of the first pod's sidecar on a busy node: the Job controller then sees its exit code.
		{"FailJob of main, main fails once", batchv1.PodFailurePolicyActionFailJob, true,
			"[ -e $STATE ] && sleep 15 && exit 0; sleep 1; : > $STATE; exit 1", exits143, 2},
	} {
		for _, column := range columns[:3] {
			name := fmt.Sprintf("rules-%d-%s", i, strings.ToLower(string(column)))
			t.Run(fmt.Sprintf("%s, %s", row.name, column), func(t *testing.T) {
				t.Parallel()
				main := harness.WithEnv(harness.Container(harness.MainName, row.main), "STATE", "/state/"+name)
				job := harness.Job(name, corev1.RestartPolicyNever, harness.Sidecar(row.sidecar), main)
				harness.MountHostDirectory(&job.Spec.Template.Spec, harness.MainName, state, "/state")
				codes := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{137, 143}}
				if row.ofMain {
					codes.ContainerName = ptr.To(harness.MainName)
				}
				job.Spec.BackoffLimit = ptr.To[int32](1)
				job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: row.action, OnExitCodes: codes}}}
				if row.action == batchv1.PodFailurePolicyActionFailIndex {
					job.Spec.CompletionMode, job.Spec.Completions = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](2)
					job.Spec.Parallelism, job.Spec.BackoffLimit, job.Spec.BackoffLimitPerIndex = ptr.To[int32](2), nil, ptr.To[int32](1)
				}
				got := run.run(t, job, column)
				got.pod, got.runs = "", 0
				if want := (outcome{job: "Complete", reason: batchv1.JobReasonCompletionsReached, pods: row.pods}); got != want {
					t.Errorf("The outcome is %+v, want %+v", got, want)
				}
			})
		}
	}
}
