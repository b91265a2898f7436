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

// TestLostRecords covers pods whose sidecar has its quick-exit image and no record of the swap.
func TestLostRecords(t *testing.T) {
	const late = 5 * time.Second
	// ran is a container with the quick-exit image that ended, and had been started so long after the mains were done.
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
			snapshot: observed(pod(never, running("proxy").swapped()), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"the old container has ended, and the new one has not started": {
			snapshot: observed(pod(never, ran(7, -minute)), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(late + 50*time.Second),
		},
		"the old container has ended, and nobody says when it had started": {
			snapshot: observed(pod(never, exited("proxy", 0).swapped()), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"the new container has ended": {
			snapshot: observed(pod(never, ran(0, 2*time.Second)), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"the new container has ended, and nobody says when it had started": {
			snapshot: observed(pod(never, exited("proxy", 0).swapped().restarted(1)), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"the new container of a sidecar that had never started has ended": {
			snapshot: observed(pod(onFailure, ran(0, 0)), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: terminated,
		},
		"the old container has ended with another code than 0 and is to be restarted": {
			snapshot: observed(pod(onFailure, ran(7, -minute)), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * time.Second, want: waits(late + 50*time.Second),
		},
		"the new image cannot be pulled": {
			snapshot: observed(pod(onFailure, unpullable("proxy").swapped()), targets(sidecar("proxy")), onVirtualNode),
			after:    10 * minute, want: stuck(v1alpha1.ReasonStuck),
		},
		"a sidecar that still drains has not been swapped by its image alone": {
			snapshot: observed(pod(never, running("proxy").swapped()), targets(sidecar("proxy", drain(minute))), onVirtualNode),
			after:    10 * time.Second, want: brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 50 * time.Second},
		},
		"where the image is declared, on any node": {
			snapshot: observed(pod(never, running("proxy").swapped()), targets(sidecar("proxy", mode(image)))),
			after:    10 * time.Second, want: waits(50 * time.Second),
		},
		"where it is declared, the next mode follows in the end": {
			snapshot: observed(pod(onFailure, unpullable("proxy").swapped()), targets(sidecar("proxy", mode(image))), onDaemonlessNode),
			after:    10 * minute, want: fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a sidecar that happens to have the image is ended by another mode where Image does not come first": {
			snapshot: observed(pod(never, running("proxy").swapped()), targets(sidecar("proxy")), onDaemonlessNode),
			after:    10 * time.Second, want: terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"another sidecar is swapped meanwhile": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").swapped(), running("other")),
				targets(sidecar("other"), sidecar("proxy")), onVirtualNode),
			after: 10 * time.Second, want: requeued(terminating("Image#1 [other] within 1m0s"), 50*time.Second),
		},
	})
}

func requeued(b brief, after time.Duration) brief {
	b.Requeue = after
	return b
}

func TestALostRecordStillTellsByWhichModeThePodEnded(t *testing.T) {
	pod := newPod(never, exited("main", 0), exited("proxy", 0).swapped().restarted(1))
	if got := plan.Next(observed(pod, targets(sidecar("proxy")), onVirtualNode), done); got.Tried != image || got.Stage != plan.StageTerminated {
		t.Errorf("the pod is %s by mode %q", got.Stage, got.Tried)
	}
}
