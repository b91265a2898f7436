// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// A denied write is not an attempt: the next usable mode follows.
func TestDeniedWrite(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }

	runScenarios(t, map[string]scenario{
		"a denied phase falls to the image":                {observed(pod(), oneProxy(), withoutKruise, denying(podPhase)), 0, requeued(terminating(swapOfProxy), 15*time.Second)},
		"a denied mark: an exit code counts after a CRR":   {observed(pod(), oneProxy(), unmarked, denying(podPhase)), 0, requeued(terminating(swapOfProxy), 15*time.Second)},
		"a denied phase of a recorded pod does not matter": {observed(pod(), oneProxy(), denying(podPhase)), 0, requeued(terminating(crrOfProxy), 15*time.Second)},
		"a denied swap in a failed pod falls to a CRR":     {observed(newPod(never, exited("main", 7), running("proxy")), oneProxy(), denying(image)), 0, requeued(terminating(crrOfProxy), 15*time.Second)},
		"a denied CRR falls to the phase":                  {observed(pod(), oneProxy(), denying(crr)), 0, requeued(terminating(phaseOfProxy), 15*time.Second)},
		"a denied declared swap falls to the phase":        {observed(pod(), oneProxy(mode(image)), withoutKruise, denying(image)), 0, requeued(fallingBack(phaseOfProxy), 15*time.Second)},
		"no usable mode is left if all writes are denied":  {observed(pod(), oneProxy(), withoutKruise, denying(podPhase, image)), 0, requeued(stuck(v1alpha1.ReasonNoUsableMode), time.Second)},
		"a denied mode without fallback is stuck":          {observed(pod(), oneProxy(mode(image), noFallback), denying(image)), 0, requeued(stuck(v1alpha1.ReasonWriteRefused), time.Second)},
		"a missing image is reported before the denial":    {observed(pod(), oneProxy(mode(image), noFallback, noImage), denying(image)), 0, requeued(stuck(v1alpha1.ReasonNoQuickExitImage), time.Second)},
		"an attempt in progress continues":                 {observed(pod(), oneProxy(mode(image), noFallback), attempted(swap("proxy")), denying(image)), 0, inProgress(15 * time.Second)},
		"a failed attempt is reported first":               {observed(pod(), oneProxy(mode(image)), withoutKruise, attempted(swap("proxy")), denying(podPhase)), minute, requeued(stuck(v1alpha1.ReasonStuck), minute)},
		"a denied mark is tried again while mains run":     {observed(newPod(never, running("main"), running("proxy")), oneProxy(), unmarked, denying(podPhase)), -minute, waits(v1alpha1.ReasonMainContainersRunning, 10*minute)},
	})
}

// The earlier attempts on a pod are unknown if their record is corrupt.
func TestInvalidAnnotation(t *testing.T) {
	proxy := oneProxy()
	corrupt := func(s *plan.Snapshot) { s.InvalidAnnotation = "unreadable record on the pod: annotation a: no JSON" }
	left := stuck(v1alpha1.ReasonInvalidAnnotation)

	runScenarios(t, map[string]scenario{
		"stops the operator from acting":                {observed(finishedMain(never), proxy, corrupt), 0, left},
		"is reported while the main container runs":     {observed(newPod(never, running("main"), running("proxy")), proxy, corrupt), 0, left},
		"is reported after the phase has ended the pod": {observed(finishedMain(never), proxy, endedByPhase, corrupt), 0, left},
		"does not matter to a pod without a sidecar":    {observed(newPod(never, exited("main", 0)), nil, corrupt), 0, ignored(v1alpha1.ReasonNoSidecar)},
		"does not matter once the pod has finished":     {observed(finishedMain(never, exited("proxy", 0)), proxy, phase(corev1.PodSucceeded), corrupt), 0, ignored(v1alpha1.ReasonPodFinished)},
		"does not matter once every sidecar has ended":  {observed(finishedMain(never, exited("proxy", 0)), proxy, corrupt, assumeMarked), 0, terminated()},
	})
}
