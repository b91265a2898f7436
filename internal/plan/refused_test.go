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

// refusing has the writes of these modes been refused a moment ago.
func refusing(modes ...v1alpha1.Mode) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Refused = map[v1alpha1.Mode]string{}
		for _, m := range modes {
			s.Refused[m] = "a webhook denied it"
		}
	}
}

// A refused write is no attempt: what follows is what follows a mode that cannot be used.
func TestARefusedWrite(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	one := func(changes ...func(*resolve.Target)) []resolve.Target { return targets(sidecar("proxy", changes...)) }

	runScenarios(t, map[string]scenario{
		"the image is swapped where the phase may not be written": {
			snapshot: observed(pod(), one(), withoutKruise, refusing(podPhase)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a request is not made without the phase that goes first, for the exit code would count": {
			snapshot: observed(pod(), one(), refusing(podPhase)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a request that needs no phase is made all the same": {
			snapshot: observed(pod(), one(respect), refusing(podPhase)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a request is made where the pod has failed and has no image": {
			snapshot: observed(newPod(never, exited("main", 7), running("proxy")), one(noImage), refusing(podPhase)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a request is made where a swap in a failed pod is refused": {
			snapshot: observed(newPod(never, exited("main", 7), running("proxy")), one(), refusing(image)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"the phase is written where a request is refused": {
			snapshot: observed(pod(), one(), refusing(crr)),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"the phase is written in place of a declared image": {
			snapshot: observed(pod(), one(mode(image)), withoutKruise, refusing(image)),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"nothing is left when all are refused": {
			snapshot: observed(pod(), one(), withoutKruise, refusing(podPhase, image)),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared mode without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(image), noFallback), refusing(image)),
			want:     stuck(v1alpha1.ReasonWriteRefused),
		},
		"another obstacle goes before the refusal": {
			snapshot: observed(pod(), one(mode(image), noFallback, noImage), refusing(image)),
			want:     stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"an attempt that was made before is waited for": {
			snapshot: observed(pod(), one(mode(image), noFallback), attempted(swap("proxy")), refusing(image)),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"an attempt that has failed is told of first": {
			snapshot: observed(pod(), one(mode(image)), withoutKruise, attempted(swap("proxy")), refusing(podPhase)),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
	})
}

func TestARefusalIsSaidWithItsAnswer(t *testing.T) {
	pod := newPod(never, exited("main", 0), running("proxy"))
	for name, snapshot := range map[string]plan.Snapshot{
		"as the only reason": observed(pod, targets(sidecar("proxy", mode(image), noFallback)), refusing(image)),
		"among others":       observed(pod, targets(sidecar("proxy")), withoutKruise, refusing(podPhase, image)),
		"after a failure":    observed(pod, targets(sidecar("proxy", mode(image))), withoutKruise, attempted(swap("proxy")), refusing(podPhase)),
		"of the phase that goes before a request": observed(pod, targets(sidecar("proxy", mode(crr), noFallback)),
			refusing(podPhase)),
	} {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(snapshot, done.Add(minute))
			if decision.Stage != plan.StageStuck || !strings.Contains(decision.Message, "a webhook denied it") {
				t.Errorf("got %s: %s", decision.Stage, decision.Message)
			}
			if len(decision.Refused) == 0 {
				t.Error("the decision does not say what it left out")
			}
		})
	}
}

func TestAGuardThatMayNotBeTakenOffIsToldOf(t *testing.T) {
	s := guarded(running("proxy"))
	refusing(podPhase)(&s)
	decision := plan.Next(s, done.Add(10*minute))
	if decision.Stage != plan.StageStuck || decision.Reason != v1alpha1.ReasonWriteRefused || len(decision.Actions) > 0 {
		t.Errorf("got %s %s with %d actions: %s", decision.Stage, decision.Reason, len(decision.Actions), decision.Message)
	}
}

// What was done to a pod is not known where the record of it cannot be read.
func TestAnUnreadableRecord(t *testing.T) {
	proxy := targets(sidecar("proxy"))
	spoilt := func(s *plan.Snapshot) { s.Unreadable = "unreadable record on the pod: annotation a: no JSON" }
	left := brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonUnreadableRecord}

	runScenarios(t, map[string]scenario{
		"stops what would be done": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), proxy, spoilt),
			want:     left,
		},
		"is told of as soon as it is seen": {
			snapshot: observed(newPod(never, running("main"), running("proxy")), proxy, spoilt),
			want:     left,
		},
		"is told of while a written phase is acted upon": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), proxy, phase(corev1.PodSucceeded), spoilt),
			want:     left,
		},
		"does not matter to a pod without a sidecar": {
			snapshot: observed(newPod(never, exited("main", 0)), nil, spoilt),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar},
		},
		"does not matter once the pod has finished": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, phase(corev1.PodSucceeded), spoilt),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"does not matter once every sidecar has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, spoilt),
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
	})
}
