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
		return newPod(policy, exited("main", 0), c)
	}
	waits := func(left time.Duration) brief {
		return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: left}
	}
	terminated := brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated}

	runScenarios(t, map[string]scenario{
		"the old container still runs": {
			snapshot: observed(pod(never, running("proxy").swapped()), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"the old container still runs, and the node's clock is ahead": {
			snapshot: observed(newPod(never, exited("main", 0).endedAt(done.Add(50*minute)), running("proxy").swapped()), sidecarsOf(sidecar("proxy")), onVirtualNode,
				containersUnchangedSince(done)),
			after: 10 * time.Second, want: waits(50 * time.Second),
		},
		"old container ended, new one not started": {
			snapshot: observed(pod(never, ran(7, -minute)), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(late + 50*time.Second),
		},
		"old container ended, start time unknown": {
			snapshot: observed(pod(never, exited("proxy", 0).swapped()), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"the new container has ended": {
			snapshot: observed(pod(never, ran(0, 2*time.Second)), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"new container ended, start time unknown": {
			snapshot: observed(pod(never, exited("proxy", 0).swapped().restarted(1)), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"new container of a never-started sidecar ended": {
			snapshot: observed(pod(onFailure, ran(0, 0)), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"old container failed and will restart": {
			snapshot: observed(pod(onFailure, ran(7, -minute)), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(late + 50*time.Second),
		},
		"the new image cannot be pulled": {
			snapshot: observed(pod(onFailure, unpullable("proxy").swapped()), sidecarsOf(sidecar("proxy")), onVirtualNode),
			after:    10 * minute, want: stuck(v1alpha1.ReasonStuck),
		},
		"the quick-exit image alone does not end a drain": {
			snapshot: observed(pod(never, running("proxy").swapped()), sidecarsOf(sidecar("proxy", drain(minute))), onVirtualNode),
			after:    10 * time.Second, want: brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 50 * time.Second},
		},
		"mode Image on any node": {
			snapshot: observed(pod(never, running("proxy").swapped()), sidecarsOf(sidecar("proxy", mode(image)))),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"mode Image falls back after its deadline": {
			snapshot: observed(pod(onFailure, unpullable("proxy").swapped()), sidecarsOf(sidecar("proxy", mode(image))), onDaemonlessNode),
			after:    10 * minute, want: fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Image is not the first mode: the first mode is used": {
			snapshot: observed(pod(never, running("proxy").swapped()), sidecarsOf(sidecar("proxy")), onDaemonlessNode),
			after:    10 * time.Second, want: terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"another sidecar is swapped at the same time": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").swapped(), running("other")),
				sidecarsOf(sidecar("other"), sidecar("proxy")), onVirtualNode),
			after: 10 * time.Second, want: requeued(terminating("Image#1 [other] within 1m0s"), 50*time.Second),
		},
	})
}

func requeued(b brief, after time.Duration) brief {
	b.Requeue = after
	return b
}

func TestLostSwapIsTried(t *testing.T) {
	pod := newPod(never, exited("main", 0), exited("proxy", 0).swapped().restarted(1))
	if got := plan.Next(observed(pod, sidecarsOf(sidecar("proxy")), onVirtualNode), done); got.Tried != image || got.Stage != plan.StageTerminated {
		t.Errorf("the pod is %s by mode %q", got.Stage, got.Tried)
	}
}
