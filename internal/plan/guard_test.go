// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// guarded returns a snapshot whose phase was written at done and is guarded, with the sidecar in the given state.
func guarded(c container) plan.Snapshot {
	pod := newPod(never, exited("main", 0), c)
	pod.Status.Phase = corev1.PodSucceeded
	pod.Annotations = map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"}
	s := observed(pod, []resolve.Target{sidecar("proxy", mode(v1alpha1.ModePodPhase), noFallback)})
	s.Attempts = []plan.Attempt{{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModePodPhase, Started: done}}
	return s
}

func TestTheGuardIsTakenOffAPhaseThatTheKubeletIgnores(t *testing.T) {
	const longest = 30*time.Second + 5*time.Minute // the grace period and what a slow node is given
	for name, test := range map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		release  bool
	}{
		"not before the node has had its time":             {guarded(running("proxy")), longest - time.Second, false},
		"when the node has had its time":                   {guarded(running("proxy")), longest, true},
		"not when the sidecar has ended":                   {guarded(exited("proxy", 143)), longest, false},
		"not without the right to write the phase":         {phaseDisabled(guarded(running("proxy"))), longest, false},
		"not when the guard is off already, by whose hand": {withoutGuard(guarded(running("proxy"))), longest, false},
		"not from a pod that is being deleted":             {deleted(guarded(running("proxy"))), longest, false},
		"when no policy governs the pod any more":          {declared(guarded(running("proxy"))), longest, true},
		"not before that, when no policy governs it":       {declared(guarded(running("proxy"))), longest - time.Second, false},
		"when another container is the sidecar by now":     {declared(guarded(running("proxy")), sidecar("main")), longest, true},
		"when the sidecar is to drain by now":              {declared(guarded(running("proxy")), sidecar("proxy", drain(time.Hour))), longest, true},
		"when every container is a sidecar by now":         {declared(guarded(running("proxy")), sidecar("main"), sidecar("proxy")), longest, true},
	} {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(test.snapshot, done.Add(test.after))
			released := len(decision.Actions) == 1 && decision.Actions[0].ReleasePhase
			if released != test.release {
				t.Errorf("the guard is taken off: %t, want %t (%s: %s)", released, test.release, decision.Reason, decision.Message)
			}
		})
	}
}

func TestAStuckPodIsLookedAtAgainWhenItsGuardMayBeTakenOff(t *testing.T) {
	decision := plan.Next(guarded(running("proxy")), done.Add(2*time.Minute))
	if decision.Reason != v1alpha1.ReasonStuck {
		t.Fatalf("got %s, want Stuck: %s", decision.Reason, decision.Message)
	}
	if want := 3*time.Minute + 30*time.Second; decision.RequeueAfter != want {
		t.Errorf("looked at again after %s, want %s", decision.RequeueAfter, want)
	}
}

func TestAPodThatNoPolicyGovernsIsLookedAtAgainWhenItsGuardMayBeTakenOff(t *testing.T) {
	decision := plan.Next(declared(guarded(running("proxy"))), done.Add(2*time.Minute))
	if decision.Reason != v1alpha1.ReasonNoSidecar || len(decision.Actions) > 0 {
		t.Fatalf("got %+v", briefly(decision))
	}
	if want := 3*time.Minute + 30*time.Second; decision.RequeueAfter != want {
		t.Errorf("looked at again after %s, want %s", decision.RequeueAfter, want)
	}
}

// declared makes these the sidecars of the pod, and no others.
func declared(s plan.Snapshot, sidecars ...resolve.Target) plan.Snapshot {
	return observed(s.Pod, sidecars, func(now *plan.Snapshot) { now.Attempts = s.Attempts })
}

func deleted(s plan.Snapshot) plan.Snapshot {
	s.Pod.DeletionTimestamp = &metav1.Time{Time: done}
	return s
}

func withoutGuard(s plan.Snapshot) plan.Snapshot {
	s.Pod.Annotations = nil
	return s
}

func phaseDisabled(s plan.Snapshot) plan.Snapshot {
	s.Capabilities.PodPhase = plan.PodPhaseDisabled
	return s
}
