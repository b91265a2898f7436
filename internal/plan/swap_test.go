// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestLostSwap covers pods whose sidecar has its quick-exit image, but no record of the swap.
func TestLostSwap(t *testing.T) {
	const late = 5 * time.Second
	// ran is an ended container with the quick-exit image. It started this long after the mains were done.
	ran := func(code int32, started time.Duration) container {
		c := exited("proxy", code).swapped().endedAt(done.Add(late))
		c.status.State.Terminated.StartedAt = metav1.NewTime(done.Add(started))
		return c
	}
	pod := func(policy corev1.RestartPolicy, c container) *corev1.Pod {
		return finishedMain(policy, c)
	}

	runScenarios(t, map[string]scenario{
		"the old container still runs": {observed(pod(never, running("proxy").swapped()), oneProxy(), onVirtualNode), 10 * time.Second, inProgress(50 * time.Second)},
		"the old container still runs, and the node's clock is ahead": {
			observed(newPod(never, exited("main", 0).endedAt(done.Add(50*minute)), running("proxy").swapped()), oneProxy(), onVirtualNode, drainsSince(done)),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"old container ended, new one not started":       {observed(pod(never, ran(7, -minute)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(late + 50*time.Second)},
		"old container ended, start time unknown":        {observed(pod(never, exited("proxy", 0).swapped()), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(50 * time.Second)},
		"the new container has ended":                    {observed(pod(never, ran(0, 2*time.Second)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"new container ended, start time unknown":        {observed(pod(never, exited("proxy", 0).swapped().restarted(1)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"new container of a never-started sidecar ended": {observed(pod(onFailure, ran(0, 0)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"old container failed and will restart":          {observed(pod(onFailure, ran(7, -minute)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(late + 50*time.Second)},
		"the new image cannot be pulled":                 {observed(pod(onFailure, unpullable("proxy").swapped()), oneProxy(), onVirtualNode, assumeMarked), 10 * minute, stuck(v1alpha1.ReasonStuck)},
		"the quick-exit image alone does not end a drain": {
			observed(pod(never, running("proxy").swapped()), oneProxy(drain(minute)), onVirtualNode),
			10 * time.Second, waits(v1alpha1.ReasonDraining, 50*time.Second),
		},
		"mode Image on any node":                              {observed(pod(never, running("proxy").swapped()), oneProxy(mode(image))), 10 * time.Second, inProgress(50 * time.Second)},
		"mode Image falls back after its deadline":            {observed(pod(onFailure, unpullable("proxy").swapped()), oneProxy(mode(image)), onDaemonlessNode, assumeMarked), 10 * minute, fallingBack(phaseOfProxy)},
		"Image is not the first mode: the first mode is used": {observed(pod(never, running("proxy").swapped()), oneProxy(), onDaemonlessNode), 10 * time.Second, terminating(phaseOfProxy)},
		"another sidecar is swapped at the same time": {
			observed(finishedMain(never, running("proxy").swapped(), running("other")), sidecarsOf(sidecar("other"), sidecar("proxy")), onVirtualNode),
			10 * time.Second, requeued(terminating("Image#2 [other] within 1m0s"), 50*time.Second),
		},
	})
}

func TestLostSwapIsTried(t *testing.T) {
	pod := finishedMain(never, exited("proxy", 0).swapped().restarted(1))
	if got := plan.Next(observed(pod, oneProxy(), onVirtualNode, assumeMarked), done); got.Tried != image || got.Stage != plan.StageTerminated {
		t.Errorf("the pod is %s by mode %q", got.Stage, got.Tried)
	}
}
