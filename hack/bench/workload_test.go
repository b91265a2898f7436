// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFinishedPodsHaveNoRunningContainer(t *testing.T) {
	pod := newPod("bench", "import", nodeName)
	finishes(pod)
	if pod.Status.Phase != corev1.PodSucceeded || len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers) {
		t.Errorf("got phase %s and %d statuses, want Succeeded and %d", pod.Status.Phase, len(pod.Status.ContainerStatuses), len(pod.Spec.Containers))
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated == nil || status.State.Running != nil || status.Ready {
			t.Errorf("container %s: got %+v, want it terminated", status.Name, status)
		}
	}
}
