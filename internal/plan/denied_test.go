// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// denying returns a change after which the last write of each of these modes was denied.
func denying(modes ...v1alpha1.Mode) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Denied = map[v1alpha1.Mode]string{}
		for _, m := range modes {
			s.Denied[m] = "a webhook denied it"
		}
	}
}

// A denied write is not an attempt: the next usable mode follows.
func TestDeniedWrite(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	one := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("proxy", changes...))
	}

	runScenarios(t, map[string]scenario{
		"the image is swapped if the phase write is denied": {
			snapshot: observed(pod(), one(), withoutKruise, denying(podPhase)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"no CRR without its phase": {
			snapshot: observed(pod(), one(), denying(podPhase)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a CRR that needs no phase is created": {
			snapshot: observed(pod(), one(respect), denying(podPhase)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a CRR is created if the pod has failed without an image": {
			snapshot: observed(newPod(never, exited("main", 7), running("proxy")), one(noImage), denying(podPhase)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a CRR is created if a swap in a failed pod is denied": {
			snapshot: observed(newPod(never, exited("main", 7), running("proxy")), one(), denying(image)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"the phase is written if a CRR is denied": {
			snapshot: observed(pod(), one(), denying(crr)),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"the phase is written if a declared swap is denied": {
			snapshot: observed(pod(), one(mode(image)), withoutKruise, denying(image)),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"no usable mode is left if all writes are denied": {
			snapshot: observed(pod(), one(), withoutKruise, denying(podPhase, image)),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a denied mode without fallback is stuck": {
			snapshot: observed(pod(), one(mode(image), noFallback), denying(image)),
			want:     stuck(v1alpha1.ReasonWriteRefused),
		},
		"a missing image is reported before the denial": {
			snapshot: observed(pod(), one(mode(image), noFallback, noImage), denying(image)),
			want:     stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"an attempt in progress continues": {
			snapshot: observed(pod(), one(mode(image), noFallback), attempted(swap("proxy")), denying(image)),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"a failed attempt is reported first": {
			snapshot: observed(pod(), one(mode(image)), withoutKruise, attempted(swap("proxy")), denying(podPhase)),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
	})
}

func TestDeniedWriteMessage(t *testing.T) {
	pod := newPod(never, exited("main", 0), running("proxy"))
	for name, snapshot := range map[string]plan.Snapshot{
		"as the only reason": observed(pod, sidecarsOf(sidecar("proxy", mode(image), noFallback)), denying(image)),
		"among others":       observed(pod, sidecarsOf(sidecar("proxy")), withoutKruise, denying(podPhase, image)),
		"after a failure":    observed(pod, sidecarsOf(sidecar("proxy", mode(image))), withoutKruise, attempted(swap("proxy")), denying(podPhase)),
		"of the phase that goes before a CRR": observed(pod, sidecarsOf(sidecar("proxy", mode(crr), noFallback)),
			denying(podPhase)),
	} {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(snapshot, done.Add(minute))
			if decision.Stage != plan.StageStuck || !strings.Contains(decision.Message, "a webhook denied it") {
				t.Errorf("got %s: %s", decision.Stage, decision.Message)
			}
			if len(decision.Denied) == 0 {
				t.Error("the decision does not report the denied mode")
			}
		})
	}
}

func TestDeniedRelease(t *testing.T) {
	s := guarded(running("proxy"))
	denying(podPhase)(&s)
	decision := plan.Next(s, done.Add(10*minute))
	if decision.Stage != plan.StageStuck || decision.Reason != v1alpha1.ReasonWriteRefused || len(decision.Actions) > 0 {
		t.Errorf("got %s %s with %d actions: %s", decision.Stage, decision.Reason, len(decision.Actions), decision.Message)
	}
}

// The earlier attempts on a pod are unknown if their record is corrupt.
func TestInvalidAnnotation(t *testing.T) {
	proxy := sidecarsOf(sidecar("proxy"))
	corrupt := func(s *plan.Snapshot) { s.InvalidAnnotation = "unreadable record on the pod: annotation a: no JSON" }
	left := brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonInvalidAnnotation}

	runScenarios(t, map[string]scenario{
		"stops the operator from acting": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), proxy, corrupt),
			want:     left,
		},
		"is reported while the main container runs": {
			snapshot: observed(newPod(never, running("main"), running("proxy")), proxy, corrupt),
			want:     left,
		},
		"is reported after the phase was written": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), proxy, phase(corev1.PodSucceeded), corrupt),
			want:     left,
		},
		"does not matter to a pod without a sidecar": {
			snapshot: observed(newPod(never, exited("main", 0)), nil, corrupt),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar},
		},
		"does not matter once the pod has finished": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, phase(corev1.PodSucceeded), corrupt),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"does not matter once every sidecar has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, corrupt),
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
	})
}
