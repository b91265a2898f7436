// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// boundOfBugs is the number of schedules within which the simulation must find each bug.
const boundOfBugs = 2000

// bug is a bug of the simulated operator or admission policy.
type bug struct {
	// sees changes what the operator sees. The pod is a copy.
	sees func(*plan.Snapshot)
	// decides changes what the operator decides.
	decides func(plan.Snapshot, *plan.Decision)
	// policy changes what the admission policy makes of a written pod.
	policy func(old, written, result *corev1.Pod)
	// unconditional leaves out the precondition of patches, withoutUID the pod's UID in marks, and unguarded the admission policy that keeps
	// a terminal phase.
	unconditional, withoutUID, unguarded bool
	// believes reports whether OpenKruise's denial counts so long after the end of the main container, by the node's clock.
	believes func(sinceEnd time.Duration) bool
}

// ofMark changes the marks of a decision that end nothing.
func ofMark(change func(plan.Snapshot, *plan.Mark)) bug {
	return bug{decides: func(s plan.Snapshot, d *plan.Decision) {
		if mark := markOf(*d); mark != nil {
			change(s, mark)
		}
	}}
}

// withoutMark drops such marks that end nothing, and withoutRequeue the requeues of such pods.
func withoutMark(drop func(plan.Snapshot, *plan.Mark) bool) bug {
	return bug{decides: func(s plan.Snapshot, d *plan.Decision) {
		if mark := markOf(*d); mark != nil && drop(s, mark) {
			d.Writes = d.Ends()
		}
	}}
}

// isRuled reports whether the admission policy leaves the record to the operator.
func isRuled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
}

func withoutRequeue(drop func(plan.Snapshot) bool) bug {
	return bug{decides: func(s plan.Snapshot, d *plan.Decision) {
		if drop(s) {
			d.RequeueAfter = 0
		}
	}}
}

func (b bug) none() bool {
	return b.sees == nil && b.decides == nil && b.policy == nil && b.believes == nil && !b.unconditional && !b.withoutUID && !b.unguarded
}

// bugs are what the simulation must find by what happens to the pod, without a look at the decisions.
var bugs = map[string]bug{
	"patches without a precondition":         {unconditional: true},
	"marks without the pod's UID":            {withoutUID: true},
	"does not mark pods":                     withoutMark(func(plan.Snapshot, *plan.Mark) bool { return true }),
	"acts while a main container may run":    {sees: func(s *plan.Snapshot) { endContainers(s, s.View.Mains...) }},
	"forgets its attempts":                   {sees: func(s *plan.Snapshot) { s.Attempts = nil }},
	"does not see that the pod has finished": {sees: func(s *plan.Snapshot) { s.Pod.Status.Phase = corev1.PodRunning }},
	"acts on disturbed pods": {sees: func(s *plan.Snapshot) {
		s.Pod.DeletionTimestamp, s.Pod.Status.Reason, s.Pod.Status.Conditions = nil, "", nil
	}},
	"decides nothing that the admission policy has not": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		if isMarked(s.Pod) && !isRuled(s.Pod) {
			m.Record = ""
		}
	}),
	"records what the admission policy has not, and does not decide": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		if m.Record == v1alpha1.MainsDecided {
			m.Record = v1alpha1.MainsSucceeded
		}
	}),
	"takes a virtual node for one with a kubelet": {sees: func(s *plan.Snapshot) { s.Node = plan.NodeReal }},
	"takes the end of a CRR for the end of its containers": {sees: func(s *plan.Snapshot) {
		for _, attempt := range s.Attempts {
			if attempt.Mode == crr && !attempt.Finished.IsZero() {
				endContainers(s, slices.Collect(maps.Keys(attempt.RestartCounts))...)
			}
		}
	}},
	"takes a new CRR for one that has stopped its containers": {sees: func(s *plan.Snapshot) {
		for i := range s.Attempts {
			s.Attempts[i].Stopped = s.Attempts[i].Mode == crr
		}
	}},
	"ends in advance although a sidecar drains": ofMark(func(_ plan.Snapshot, m *plan.Mark) { m.End = v1alpha1.EndPodPhase }),
	"records before the main container is done": ofMark(func(_ plan.Snapshot, m *plan.Mark) { m.Record = v1alpha1.MainsSucceeded }),
	"does not record": ofMark(func(_ plan.Snapshot, m *plan.Mark) { m.Record = "" }),
	"ends every pod as if it had succeeded": {decides: func(_ plan.Snapshot, d *plan.Decision) {
		for i := range d.Writes {
			if mark := d.Writes[i].Mark; mark != nil {
				mark.End, mark.Record = v1alpha1.EndPodPhase, v1alpha1.MainsDecided
			}
		}
	}},
	"ignores the exit code of the main container": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		m.IgnoredExitCodes = append(slices.Clone(s.View.Mains), m.IgnoredExitCodes...)
	}),
	"ignores exit codes that count": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		m.IgnoredExitCodes = nil
		for _, sidecar := range s.View.Sidecars {
			m.IgnoredExitCodes = append(m.IgnoredExitCodes, sidecar.Container)
		}
	}),
	"does not change a mark": withoutMark(func(s plan.Snapshot, _ *plan.Mark) bool { return isMarked(s.Pod) }),
	"names the main container in a CRR": {decides: func(s plan.Snapshot, d *plan.Decision) {
		for i := range d.Writes {
			if d.Writes[i].Mode == crr {
				d.Writes[i].Containers = slices.Sorted(slices.Values(slices.Concat(d.Writes[i].Containers, s.View.Mains)))
			}
		}
	}},
	"lets an unreadable Job take a mark back": {sees: func(s *plan.Snapshot) { s.JobUnreadable = s.JobUnreadable && !isMarked(s.Pod) }},
	"does not read an unreadable Job again":   withoutRequeue(func(s plan.Snapshot) bool { return s.JobUnreadable }),
	"does not try a denied mark again":        withoutRequeue(func(s plan.Snapshot) bool { return len(s.Denied) > 0 }),
	"corrects no mark after too many changes": {sees: func(s *plan.Snapshot) {
		if !s.MarkAfter.IsZero() {
			s.MarkAfter = done.Add(forever)
		}
	}},
	"lets a restarted sidecar end a pod on a virtual node": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		if s.Node == plan.NodeVirtual && m.End == v1alpha1.EndExited {
			m.End = v1alpha1.EndWaiting
		}
	}),
	"lets a restarted sidecar end a pod in a drain": ofMark(func(s plan.Snapshot, m *plan.Mark) {
		if slices.ContainsFunc(s.View.Sidecars, func(t resolve.Sidecar) bool { return t.Drain > 0 }) {
			m.End = v1alpha1.EndWaiting
		}
	}),
	"takes earlier restarts of a new main container for a restart of all": {sees: func(s *plan.Snapshot) {
		for i := range s.Attempts {
			restarts := map[string]int32{}
			for _, name := range s.View.Mains {
				restarts[name] = 0
			}
			maps.Copy(restarts, s.Attempts[i].MainRestarts)
			s.Attempts[i].MainRestarts = restarts
		}
	}},
	"counts on from a forged number": {decides: func(s plan.Snapshot, d *plan.Decision) {
		isLast := func(a plan.Attempt) bool { return a.Number == plan.MaxNumber }
		for i := range d.Writes {
			if d.Writes[i].Mode == crr && slices.ContainsFunc(s.Attempts, isLast) {
				d.Writes[i].Attempt = plan.MaxNumber + 1
			}
		}
	}},
	"ends sidecars in no order": {sees: func(s *plan.Snapshot) {
		s.View.Sidecars = slices.Clone(s.View.Sidecars)
		for i := range s.View.Sidecars {
			s.View.Sidecars[i].Order = 0
		}
	}},
	"waits for as long as the node's clock is ahead": {believes: func(sinceEnd time.Duration) bool { return sinceEnd >= minute }},
	"takes the answer of a stale cache for a denial": {believes: func(time.Duration) bool { return true }},
	"does not requeue": withoutRequeue(func(plan.Snapshot) bool { return true }),
	"does not fall back": {decides: func(_ plan.Snapshot, d *plan.Decision) {
		if len(d.Failures) > 0 {
			d.Writes = nil
		}
	}},
	"admission: takes back a record": {policy: func(old, written, result *corev1.Pod) {
		if old, written := unrecorded(old), unrecorded(written); isRecorded(result) && !isRecorded(decide(old, written)) {
			result.Annotations[v1alpha1.AnnotationMainContainers] = own(v1alpha1.MainsRunning)
		}
	}},
	"admission: decides on disturbed pods": {policy: func(old, written, result *corev1.Pod) {
		*result = *decide(undisturbed(old), undisturbed(written))
		result.DeletionTimestamp, result.Status.Reason, result.Status.Conditions = written.DeletionTimestamp, written.Status.Reason, written.Status.Conditions
	}},
	"admission: sets a phase that the kubelet does not see": {policy: func(_, _, result *corev1.Pod) {
		if recordOf(result) == v1alpha1.MainsDecided {
			result.Annotations[v1alpha1.AnnotationMainContainers] = own(v1alpha1.MainsSucceeded)
		}
	}},
	"admission: a terminal phase is not final":  {unguarded: true, policy: func(_, written, result *corev1.Pod) { result.Status.Phase = written.Status.Phase }},
	"admission: nothing keeps a terminal phase": {unguarded: true},
	"admission: does not restore the mark": {policy: func(_, written, result *corev1.Pod) {
		result.Labels = written.Labels
		for _, key := range []string{v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd} {
			if _, kept := written.Annotations[key]; !kept {
				delete(result.Annotations, key)
			}
		}
	}},
	"admission: believes what stood on the pod before its mark": {policy: func(old, written, result *corev1.Pod) {
		old = old.DeepCopy()
		old.Labels = written.Labels
		*result = *decide(old, written)
	}},
	"admission: ignores the pod's deadline": {policy: func(old, written, result *corev1.Pod) {
		old = old.DeepCopy()
		old.Spec.ActiveDeadlineSeconds = nil
		annotate(result, v1alpha1.AnnotationMainContainers, decide(old, written).Annotations[v1alpha1.AnnotationMainContainers])
	}},
	"admission: takes a restarted sidecar for one that has ended": {policy: func(old, written, result *corev1.Pod) {
		old, written = old.DeepCopy(), written.DeepCopy()
		annotate(old, v1alpha1.AnnotationEnd, own(v1alpha1.EndWaiting))
		delete(written.Annotations, v1alpha1.AnnotationEnd)
		if decided := decide(old, written); !isTerminal(result) && isMarked(old) {
			result.Status.Phase = decided.Status.Phase
			annotate(result, v1alpha1.AnnotationMainContainers, decided.Annotations[v1alpha1.AnnotationMainContainers])
		}
	}},
	"admission: records although a rule restarts": {policy: func(_, written, result *corev1.Pod) {
		if status(written, "main").State.Terminated != nil {
			annotate(result, v1alpha1.AnnotationMainContainers, own(v1alpha1.MainsSucceeded))
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

// unrecorded is the pod without its record.
func unrecorded(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	delete(pod.Annotations, v1alpha1.AnnotationMainContainers)
	return pod
}

// undisturbed is the pod without its disruption.
func undisturbed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.Status.Reason, pod.Status.Conditions = nil, "", nil
	return pod
}

// TestSimulationFindsBugs gives the simulation one bug after the other. The schedules are those of TestSimulation, which
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
				m.simulate()
				m.judge()
				if len(m.problems) > 0 {
					t.Logf("found by schedule %d, in %q with seed %d: %s", schedule+1, scenario, seed, m.problems[0])
					return
				}
			}
			t.Errorf("not found by %d schedules", boundOfBugs)
		})
	}
}
