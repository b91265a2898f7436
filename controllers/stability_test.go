// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podtest"
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
