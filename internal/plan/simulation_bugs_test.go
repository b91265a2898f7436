// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/plan"
)

// boundOfBugs is the number of schedules within which the simulation must find each bug.
const boundOfBugs = 2000

// bug is a bug of the simulated operator.
type bug struct {
	// sees changes what the operator sees. The pod is a copy.
	sees func(*plan.Snapshot)
	// decides changes what the operator decides.
	decides func(plan.Snapshot, *plan.Decision)
	// unconditional leaves out the precondition of patches.
	unconditional bool
	// unguarded leaves out the annotation of the phase guard.
	unguarded bool
}

// bugs are what the simulation must find.
var bugs = map[string]bug{
	"patches without a precondition":         {unconditional: true},
	"does not guard a written phase":         {unguarded: true},
	"acts while a main container may run":    {sees: func(s *plan.Snapshot) { endContainers(s, s.View.Mains...) }},
	"ignores the stabilization window":       {sees: func(s *plan.Snapshot) { s.StabilizationWindow = 0 }},
	"forgets its attempts":                   {sees: func(s *plan.Snapshot) { s.Attempts = nil }},
	"does not see that the pod has finished": {sees: func(s *plan.Snapshot) { s.Pod.Status.Phase = corev1.PodRunning }},
	"takes the end of a CRR for the end of its containers": {sees: func(s *plan.Snapshot) {
		for _, attempt := range s.Attempts {
			if attempt.Mode == crr && !attempt.Finished.IsZero() {
				endContainers(s, slices.Collect(maps.Keys(attempt.RestartCounts))...)
			}
		}
	}},
	"takes the written phase for the end of all containers": {sees: func(s *plan.Snapshot) {
		for _, sidecar := range s.View.Sidecars {
			if hasPhase(*s) {
				endContainers(s, sidecar.Container)
			}
		}
	}},
	"takes a virtual node for one with a kubelet": {sees: func(s *plan.Snapshot) { s.Node = plan.NodeReal }},
	"writes Succeeded whatever the exit codes are": {decides: func(_ plan.Snapshot, d *plan.Decision) {
		for i := range d.Actions {
			if d.Actions[i].Mode == podPhase {
				d.Actions[i].Phase = corev1.PodSucceeded
			}
		}
	}},
	"names the main container in a CRR": {decides: func(s plan.Snapshot, d *plan.Decision) {
		for i := range d.Actions {
			if d.Actions[i].Mode == crr {
				d.Actions[i].Containers = slices.Sorted(slices.Values(slices.Concat(d.Actions[i].Containers, s.View.Mains)))
			}
		}
	}},
	"does not requeue": {decides: func(_ plan.Snapshot, d *plan.Decision) { d.RequeueAfter = 0 }},
	"does not fall back": {decides: func(_ plan.Snapshot, d *plan.Decision) {
		if len(d.Failures) > 0 {
			d.Actions = nil
		}
	}},
	"creates a CRR before the kubelet has seen the phase": {sees: func(s *plan.Snapshot) {
		for i := range s.Attempts {
			if s.Attempts[i].Mode == podPhase {
				s.Attempts[i].Started = s.Attempts[i].Started.Add(-10 * time.Minute)
			}
		}
	}},
}

// endContainers makes containers read as ended with 0.
func endContainers(s *plan.Snapshot, names ...string) {
	for i := range s.Pod.Status.ContainerStatuses {
		if st := &s.Pod.Status.ContainerStatuses[i]; slices.Contains(names, st.Name) && st.State.Terminated == nil {
			st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: s.Pod.CreationTimestamp}}
		}
	}
}

// TestSimulationFindsBugs gives the simulated operator one bug after the other. The schedules are those of TestSimulation, which
// finds nothing wrong without a bug.
func TestSimulationFindsBugs(t *testing.T) {
	all := simulations()
	names := slices.Sorted(maps.Keys(all))
	for name, bug := range bugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for schedule := range boundOfBugs {
				scenario, seed := names[schedule%len(names)], uint64(schedule/len(names))
				m := newModel(all[scenario].mixed(seed), seed)
				m.bug = bug
				if m.simulate(); len(m.problems) > 0 {
					t.Logf("found by schedule %d, in %q with seed %d: %s", schedule+1, scenario, seed, m.problems[0])
					return
				}
			}
			t.Errorf("not found by %d schedules", boundOfBugs)
		})
	}
}
