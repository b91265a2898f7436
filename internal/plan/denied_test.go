// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
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
	pod := func() *corev1.Pod { return finishedMain(never) }

	runScenarios(t, map[string]scenario{
		"the image is swapped if the phase write is denied": {observed(pod(), oneProxy(), withoutKruise, denying(podPhase)), 0, terminating(swapOfProxy)},
		"no CRR without its phase":                          {observed(pod(), oneProxy(), denying(podPhase)), 0, terminating(swapOfProxy)},
		"a CRR that needs no phase is created":              {observed(pod(), oneProxy(respect), denying(podPhase)), 0, terminating(crrOfProxy)},
		"a CRR is created if the pod has failed without an image": {
			observed(newPod(never, exited("main", 7), running("proxy")), oneProxy(noImage), denying(podPhase)),
			0, terminating(crrOfProxy),
		},
		"a CRR is created if a swap in a failed pod is denied": {
			observed(newPod(never, exited("main", 7), running("proxy")), oneProxy(), denying(image)),
			0, terminating(crrOfProxy),
		},
		"the phase is written if a CRR is denied":           {observed(pod(), oneProxy(), denying(crr)), 0, terminating(phaseOfProxy)},
		"the phase is written if a declared swap is denied": {observed(pod(), oneProxy(mode(image)), withoutKruise, denying(image)), 0, fallingBack(phaseOfProxy)},
		"no usable mode is left if all writes are denied":   {observed(pod(), oneProxy(), withoutKruise, denying(podPhase, image)), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"a denied mode without fallback is stuck":           {observed(pod(), oneProxy(mode(image), noFallback), denying(image)), 0, stuck(v1alpha1.ReasonWriteRefused)},
		"a missing image is reported before the denial": {
			observed(pod(), oneProxy(mode(image), noFallback, noImage), denying(image)),
			0, stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"an attempt in progress continues": {observed(pod(), oneProxy(mode(image), noFallback), attempted(swap("proxy")), denying(image)), 0, inProgress(minute)},
		"a failed attempt is reported first": {
			observed(pod(), oneProxy(mode(image)), withoutKruise, attempted(swap("proxy")), denying(podPhase)),
			minute, stuck(v1alpha1.ReasonStuck),
		},
	})
}

func TestDeniedWriteMessage(t *testing.T) {
	pod := finishedMain(never)
	for name, snapshot := range map[string]plan.Snapshot{
		"as the only reason": observed(pod, oneProxy(mode(image), noFallback), denying(image)),
		"among others":       observed(pod, oneProxy(), withoutKruise, denying(podPhase, image)),
		"after a failure":    observed(pod, oneProxy(mode(image)), withoutKruise, attempted(swap("proxy")), denying(podPhase)),
		"of the phase that goes before a CRR": observed(pod, oneProxy(mode(crr), noFallback),
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
	proxy := oneProxy()
	corrupt := func(s *plan.Snapshot) { s.InvalidAnnotation = "unreadable record on the pod: annotation a: no JSON" }
	left := stuck(v1alpha1.ReasonInvalidAnnotation)

	runScenarios(t, map[string]scenario{
		"stops the operator from acting":             {observed(finishedMain(never), proxy, corrupt), 0, left},
		"is reported while the main container runs":  {observed(newPod(never, running("main"), running("proxy")), proxy, corrupt), 0, left},
		"is reported after the phase was written":    {observed(finishedMain(never), proxy, phase(corev1.PodSucceeded), corrupt), 0, left},
		"does not matter to a pod without a sidecar": {observed(newPod(never, exited("main", 0)), nil, corrupt), 0, ignored(v1alpha1.ReasonNoSidecar)},
		"does not matter once the pod has finished": {
			observed(finishedMain(never, exited("proxy", 0)), proxy, phase(corev1.PodSucceeded), corrupt),
			0, ignored(v1alpha1.ReasonPodFinished),
		},
		"does not matter once every sidecar has ended": {observed(finishedMain(never, exited("proxy", 0)), proxy, corrupt), 0, terminated()},
	})
}
