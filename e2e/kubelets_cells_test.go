//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// phaseModes are the modes whose fallback chains differ once the phase has failed. CRR has the chain of Auto, and so has Image if the
// image lacks the sidecar's command.
var phaseModes = []v1alpha1.Mode{v1alpha1.ModePodPhase, v1alpha1.ModeAuto}

// uncovered ends the names of columns whose quick-exit image lacks the sidecar's command.
const uncovered = "-uncovered"

// phaseCell is a cell of the outcome matrix on a node with or without OpenKruise's daemon.
type phaseCell struct {
	cell
	daemon, covered bool
}

// phaseCells returns the cells in which the operator ends the sidecar.
func phaseCells() []phaseCell {
	var all []phaseCell
	for _, c := range cells() {
		hasEnded := c.sidecar == exitedZero || c.sidecar == exitedSeven
		mainRestarts := c.restartPolicy == corev1.RestartPolicyOnFailure && c.main == mainFails
		if c.native || hasEnded || mainRestarts || !slices.Contains(columnsOf(phaseModes), c.column) {
			continue
		}
		for _, daemon := range []bool{true, false} {
			for _, covered := range []bool{true, false} {
				next := phaseCell{c, daemon, covered}
				if !covered {
					next.column += uncovered
				}
				all = append(all, next)
			}
		}
	}
	return all
}

// createPhasePolicies creates the policies of the columns of phaseCells.
func createPhasePolicies(test *harness.Test) map[matrixColumn]*v1alpha1.SidecarTerminationPolicy {
	test.Helper()
	policies := map[matrixColumn]*v1alpha1.SidecarTerminationPolicy{}
	for _, mode := range phaseModes {
		column := matrixColumn(mode)
		policies[column], policies[column+uncovered] = columnPolicy(column), columnPolicy(column+uncovered)
		without := &policies[column+uncovered].Spec
		without.Mode, without.Image, without.QuickExitPaths = mode, harness.QuickExitImage, []v1alpha1.QuickExitPath{"/none"}
	}
	for _, policy := range policies {
		test.Create(policy)
	}
	return policies
}

func (c phaseCell) String() string {
	if c.daemon {
		return c.cell.String() + ", OpenKruise"
	}
	return c.cell.String() + ", no OpenKruise"
}

func (c phaseCell) job(name string) *batchv1.Job {
	job := c.cell.job(name)
	if !c.daemon {
		onNode(job, fargateNode)
	}
	return job
}

// idle reports whether the sidecar does not run when its main container ends. The operator then takes it for ended as soon as the
// phase is terminal. A kubelet that ignores the phase may start it again, and the phase guard hides that.
func (c phaseCell) idle() bool { return c.sidecar == crashLoops || c.sidecar == unpullable }

// modeIsLeft reports whether another mode ends the sidecar on a kubelet that ignores phases: Image, or CRR if the kubelet does not
// restart the sidecar.
func (c phaseCell) modeIsLeft() bool {
	restarts := c.restartPolicy == corev1.RestartPolicyOnFailure && c.sidecar != exitsZero
	return c.covered || c.daemon && !restarts && !c.idle()
}

// getsStuck reports whether no mode ends the sidecar on a kubelet that ignores phases, and the operator knows.
func (c phaseCell) getsStuck() bool { return !c.modeIsLeft() && !c.idle() }

// run runs the cell's Job and requires its outcome: all of it, or the Job's if the kubelet ignores phases. The phase of such a pod
// is reverted, and the kubelet may count the sidecar's exit code after the Job has finished.
func (c phaseCell) run(test *harness.Test, name string, ignores bool) {
	test.Helper()
	createCell(test, c.cell, c.job(name))
	wanted, exception := c.expect()
	if !ignores {
		requireCell(test, name, wanted, exception)
		return
	}
	test.EventuallySeen("the Job to finish and its sidecar to end or get stuck", ignoredPhaseTimeout, func(seen harness.Seen) error {
		return c.done(seen, name)
	})
	test.Recorder.Look(func(seen harness.Seen) {
		pods := seen.Pods(name)
		if !hasCondition(seen.Job(name), batchv1.JobConditionType(wanted.job)) || len(pods) != 1 || !ranOnce(pods[0]) {
			test.Errorf("Job %s is not %s by one run of its main container: %s", name, wanted.job, seen.Describe(name))
		}
	})
	if c.getsStuck() {
		test.WaitForEvent(test.PodOf(name), v1alpha1.ReasonStuck)
	}
}

// runLearned runs the cell's Job and requires all of its outcome, and that the operator writes no phase.
func (c phaseCell) runLearned(test *harness.Test, name string) {
	test.Helper()
	createCell(test, c.cell, c.job(name))
	wanted, exception := c.expect()
	requireCell(test, name, wanted, exception)
	if _, written := test.PodOf(name).Annotations[v1alpha1.AnnotationPodPhase]; written {
		test.Errorf("The operator wrote the phase of the pod of Job %s", name)
	}
}

// done returns nil when the Job has finished and, on a kubelet that ignores phases, nothing more happens to the pod.
func (c phaseCell) done(seen harness.Seen, name string) error {
	got, err := observeCell(seen, name)
	pods := seen.Pods(name)
	switch {
	case got.job == "" || c.modeIsLeft():
		return err
	case len(pods) != 1:
		return fmt.Errorf("there are %d pods, want 1", len(pods))
	case c.getsStuck() && (pods[0].Reversal() == "" || len(pods[0].Running()) == 0):
		return fmt.Errorf("the phase is guarded: %s", seen.Describe(name))
	default:
		return nil
	}
}

// ranOnce reports whether the main container has run exactly once.
func ranOnce(record *harness.PodRecord) bool {
	main := record.Container(harness.MainName)
	return main != nil && main.State.Terminated != nil && main.RestartCount == 0
}
