// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// guarded returns a snapshot with a guarded phase, written at done, and the sidecar in the given state.
func guarded(c container) plan.Snapshot {
	pod := finishedMain(never, c)
	pod.Status.Phase = corev1.PodSucceeded
	pod.Annotations = map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"}
	s := observed(pod, oneProxy(mode(podPhase), noFallback))
	s.Attempts = []plan.Attempt{{Mode: podPhase, For: podPhase, Started: done}}
	return s
}

func TestReleasePhase(t *testing.T) {
	const longest = 30*time.Second + 5*time.Minute // the grace period and the time that a slow node gets
	for name, test := range map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		release  bool
	}{
		"not before the node's time limit":               {guarded(running("proxy")), longest - time.Second, false},
		"at the node's time limit":                       {guarded(running("proxy")), longest, true},
		"not when the sidecar has ended":                 {guarded(exited("proxy", 143)), longest, false},
		"not without the right to write the phase":       {phaseDisabled(guarded(running("proxy"))), longest, false},
		"not when the guard is already off":              {withoutGuard(guarded(running("proxy"))), longest, false},
		"not from a pod being deleted":                   {deleted(guarded(running("proxy"))), longest, false},
		"when no policy selects the pod any longer":      {declared(guarded(running("proxy"))), longest, true},
		"not before the limit when no policy selects it": {declared(guarded(running("proxy"))), longest - time.Second, false},
		"when another container is now the sidecar":      {declared(guarded(running("proxy")), sidecar("main")), longest, true},
		"when the sidecar now drains":                    {declared(guarded(running("proxy")), sidecar("proxy", drain(time.Hour))), longest, true},
		"when every container is now a sidecar":          {declared(guarded(running("proxy")), sidecar("main"), sidecar("proxy")), longest, true},
	} {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(test.snapshot, done.Add(test.after))
			released := len(decision.Actions) == 1 && decision.Actions[0].ReleasePhase
			if released != test.release {
				t.Errorf("the guard is removed: %t, want %t (%s: %s)", released, test.release, decision.Reason, decision.Message)
			}
			if released {
				if diff := cmp.Diff([]string{"proxy"}, decision.Actions[0].Containers); diff != "" {
					t.Errorf("containers (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestStuckPodRequeuesForRelease(t *testing.T) {
	decision := plan.Next(guarded(running("proxy")), done.Add(2*time.Minute))
	if decision.Reason != v1alpha1.ReasonStuck {
		t.Fatalf("got %s, want Stuck: %s", decision.Reason, decision.Message)
	}
	if want := 3*time.Minute + 30*time.Second; decision.RequeueAfter != want {
		t.Errorf("requeued after %s, want %s", decision.RequeueAfter, want)
	}
}

func TestPodWithoutSidecarsRequeuesForRelease(t *testing.T) {
	decision := plan.Next(declared(guarded(running("proxy"))), done.Add(2*time.Minute))
	if decision.Reason != v1alpha1.ReasonNoSidecar || len(decision.Actions) > 0 {
		t.Fatalf("got %+v", briefly(decision))
	}
	if want := 3*time.Minute + 30*time.Second; decision.RequeueAfter != want {
		t.Errorf("requeued after %s, want %s", decision.RequeueAfter, want)
	}
}

// declared replaces the sidecars of the pod.
func declared(s plan.Snapshot, sidecars ...resolve.Sidecar) plan.Snapshot {
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
