// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestPodIsUnchangedSince(t *testing.T) {
	probed := func(pod *corev1.Pod) { pod.ResourceVersion = "18"; pod.Status.ContainerStatuses[1].Ready = true }
	for name, tc := range map[string]struct {
		next              *corev1.Pod
		quiet, containers time.Duration // after noon; the second reconcile is a minute later
	}{
		"the same version":                 {podtest.New(podtest.MainDone), 0, 0},
		"another version":                  {podtest.New(podtest.MainDone, probed), time.Minute, 0},
		"a container that ended":           {podtest.New(podtest.MainDone, podtest.SidecarDone, probed), time.Minute, time.Minute},
		"a container that restarted":       {podtest.New(podtest.MainDone, probed, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount++ }), time.Minute, time.Minute},
		"another pod of the same name":     {podtest.New(podtest.MainDone, probed, func(p *corev1.Pod) { p.UID = "5b2c" }), time.Minute, time.Minute},
		"a pod without an ended container": {podtest.New(), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			states := newPodStates(newReporter(nil, nil, nil), nil)
			states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon)
			quiet, containers := states.unchangedSince(tc.next, podtest.Noon.Add(time.Minute))
			if quiet.Sub(podtest.Noon) != tc.quiet || containers.Sub(podtest.Noon) != tc.containers {
				t.Errorf("unchanged since %s and its containers since %s after noon, want %s and %s", quiet.Sub(podtest.Noon), containers.Sub(podtest.Noon), tc.quiet, tc.containers)
			}
		})
	}
}

func TestDrainsSince(t *testing.T) {
	for name, tc := range map[string]struct {
		seenRunning bool
		clock       time.Duration // how far the node's clock is ahead
		since       time.Duration // after noon
	}{
		"the process saw the main container end":    {true, 0, 2 * time.Second},
		"saw it end, the node's clock is behind":    {true, -50 * time.Minute, 2 * time.Second},
		"saw it end, the node's clock is ahead":     {true, 50 * time.Minute, 2 * time.Second},
		"the process has started later":             {false, 0, 0},
		"started later, the node's clock is ahead":  {false, 50 * time.Minute, 2 * time.Second},
		"started later, the node's clock is behind": {false, -50 * time.Minute, -50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			done := podtest.New(podtest.MainDone, func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(podtest.Noon.Add(tc.clock))
			})
			// drains reconciles the pod some time after noon.
			drains := func(pod *corev1.Pod, after time.Duration) time.Time {
				now := podtest.Noon.Add(after)
				resolved := resolvedPodOf(pod, mesh)
				snapshot := plan.Snapshot{Pod: pod, View: resolved.resolution.Enforced}
				st.unchangedSince(pod, now)
				since := st.drainsSince(snapshot, now)
				st.record(resolved, plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, MainsDone: plan.MainsDone(snapshot)}, nil)
				return since
			}
			if tc.seenRunning {
				drains(podtest.New(), 0)
			}
			for _, after := range []time.Duration{2 * time.Second, 10 * time.Second} {
				if got := drains(done, after).Sub(podtest.Noon); got != tc.since {
					t.Errorf("after %s the sidecar drains since %s after noon, want %s", after, got, tc.since)
				}
			}
			if got := drains(podtest.New(), 15*time.Second); !got.IsZero() {
				t.Errorf("the sidecar drains since %s although the main container runs", got)
			}
			if got := drains(done, 22*time.Second).Sub(podtest.Noon); got != 22*time.Second {
				t.Errorf("after the main container has run again, the sidecar drains since %s after noon, want 22s", got)
			}
		})
	}
}

func TestForgottenPodIsUnchangedFromNowOn(t *testing.T) {
	states := newPodStates(newReporter(nil, nil, nil), nil)
	states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon)
	states.forget(keyOf(podtest.New()))
	if quiet, containers := states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon.Add(time.Hour)); !quiet.Equal(podtest.Noon.Add(time.Hour)) || !containers.Equal(quiet) {
		t.Errorf("unchanged since %s, containers since %s", quiet, containers)
	}
}

// A process that sees its phase reverted does not trust the phase guard for an hour.
func TestRevertedPhaseLengthensTheWindow(t *testing.T) {
	wrote := func(number int) plan.Decision {
		decision := terminating(v1alpha1.ModePodPhase)
		decision.Actions[0].Attempt = number
		return decision
	}
	recorded := func(number int) []plan.Attempt { return []plan.Attempt{{Mode: v1alpha1.ModePodPhase, Number: number}} }
	succeeded := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	for name, tc := range map[string]struct {
		writes   []int // numbers of the phases that this process wrote
		pod      *corev1.Pod
		attempts []plan.Attempt
		after    time.Duration
		want     time.Duration
		counted  float64
	}{
		"no phase":                        {nil, podtest.New(podtest.MainDone), nil, 0, 0, 0},
		"the phase is kept":               {[]int{0}, podtest.New(podtest.MainDone, succeeded), recorded(0), 0, 0, 0},
		"the phase is reverted":           {[]int{0}, podtest.New(podtest.MainDone), recorded(0), 0, plan.UnguardedWindow, 1},
		"an hour later":                   {[]int{0}, podtest.New(podtest.MainDone), recorded(0), time.Hour, 0, 1},
		"the cache lacks the write":       {[]int{0}, podtest.New(podtest.MainDone), nil, 0, 0, 0},
		"the cache lacks the second":      {[]int{0, 1}, podtest.New(podtest.MainDone), recorded(0), 0, 0, 0},
		"another process wrote the phase": {nil, podtest.New(podtest.MainDone), recorded(0), 0, 0, 0},
		"another pod of the same name":    {[]int{0}, podtest.New(podtest.MainDone, func(p *corev1.Pod) { p.UID = "5b2c" }), recorded(0), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			before := testutil.ToFloat64(phaseReversalsTotal)
			for _, number := range tc.writes {
				st.record(resolvedPodOf(podtest.New(podtest.MainDone), mesh), wrote(number), nil)
			}
			st.stabilizationWindow(plan.Snapshot{Pod: tc.pod, Attempts: tc.attempts}, podtest.Noon)
			// A reversal counts once, and for all pods.
			st.stabilizationWindow(plan.Snapshot{Pod: tc.pod, Attempts: tc.attempts}, podtest.Noon)
			other := podtest.New(func(p *corev1.Pod) { p.Name = "other" })
			if got := st.stabilizationWindow(plan.Snapshot{Pod: other}, podtest.Noon.Add(tc.after)); got != tc.want {
				t.Errorf("the window is %s, want %s", got, tc.want)
			}
			if got := testutil.ToFloat64(phaseReversalsTotal) - before; got != tc.counted {
				t.Errorf("%v reversals were counted, want %v", got, tc.counted)
			}
		})
	}
}
