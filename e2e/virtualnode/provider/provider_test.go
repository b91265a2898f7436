// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/virtualnode/provider"
)

const (
	exitsThree = `trap 'exit 3' TERM; echo ready; sleep 3600 & wait`
	ignores    = `trap '' TERM; while :; do sleep 1; done`
)

func TestPhaseFollowsExitCodes(t *testing.T) {
	for script, want := range map[string]corev1.PodPhase{"exit 0": corev1.PodSucceeded, "exit 4": corev1.PodFailed} {
		node := newNode(t)
		node.create(pod(corev1.RestartPolicyNever, "true", script))
		node.eventually("the pod to finish", func(pod *corev1.Pod) error {
			if pod.Status.Phase != want {
				return fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return nil
		})
	}
}

func TestFailedContainerIsRestarted(t *testing.T) {
	node := newNode(t)
	node.create(pod(corev1.RestartPolicyOnFailure, "exit 4"))
	node.eventually("a restart", func(pod *corev1.Pod) error {
		if status := pod.Status.ContainerStatuses[0]; status.RestartCount < 1 || status.LastTerminationState.Terminated.ExitCode != 4 {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
	if pod := node.get(); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
}

// An image change restarts a running container regardless of restartPolicy, and does not
// restart a terminated one.
func TestImageChangeRestartsContainer(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		node := newNode(t)
		node.create(pod(policy, "exit 0", exitsThree))
		node.eventually("the first to end and the second to run", running(1))
		node.awaitOutput("b", "ready")
		node.swap(otherImage, 0, 1)
		node.eventually("the second to run with its new image", func(pod *corev1.Pod) error {
			first, second := pod.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[1]
			switch {
			case first.RestartCount != 0:
				t.Errorf("the terminated container restarted: %+v", first)
			case second.RestartCount != 1 || second.State.Running == nil || second.Image != otherImage:
				return fmt.Errorf("the status is %+v", second)
			case second.LastTerminationState.Terminated.ExitCode != 3:
				t.Errorf("the last termination state is %+v", second.LastTerminationState)
			}
			return nil
		})
	}
}

func TestUnpullableImage(t *testing.T) {
	node := newNode(t)
	node.create(pod(corev1.RestartPolicyNever, exitsThree))
	node.eventually("the container to run", running(0))
	node.swap("localhost/not-there:1", 0)
	node.eventually("the container to wait", func(pod *corev1.Pod) error {
		status := pod.Status.ContainerStatuses[0]
		if status.State.Waiting == nil || status.State.Waiting.Reason != "ErrImagePull" || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %s with %+v", pod.Status.Phase, status)
		}
		return nil
	})
	node.swap(testImage, 0)
	node.eventually("the container to run again", running(0))
}

func TestMissingCommand(t *testing.T) {
	node := newNode(t)
	broken := pod(corev1.RestartPolicyNever, "true")
	broken.Spec.Containers[0].Command = []string{"/not/there"}
	node.create(broken)
	node.eventually("the start to fail", func(pod *corev1.Pod) error {
		if end := pod.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 128 || end.Reason != "StartError" {
			return fmt.Errorf("the status is %+v", pod.Status)
		}
		return nil
	})
}

func TestDeletedPodIsKilledAfterGracePeriod(t *testing.T) {
	node := newNode(t)
	node.create(pod(corev1.RestartPolicyNever, ignores))
	node.eventually("the container to run", running(0))
	deleted := node.get()
	deleted.DeletionGracePeriodSeconds = ptr.To[int64](1)
	begin := time.Now()
	if err := node.provider.DeletePod(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	node.eventually("the container to be killed", func(pod *corev1.Pod) error {
		if end := pod.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 {
			return fmt.Errorf("the status is %+v", pod.Status)
		}
		return nil
	})
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("it was killed after %s", took)
	}
	for known := true; known; time.Sleep(10 * time.Millisecond) {
		_, err := node.provider.GetPod(t.Context(), "default", "pod")
		known = err == nil && t.Context().Err() == nil
	}
}

// A pod that ran before the node's process restarted must not run again.
func TestPodOfPreviousProcessFails(t *testing.T) {
	node := newNode(t)
	known := pod(corev1.RestartPolicyNever, "exit 0", exitsThree)
	node.create(known.DeepCopy())
	node.eventually("the second to run", running(1))
	known.Status = node.get().Status
	node.provider.Close()
	other, err := provider.New(provider.Images{Directory: node.images}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	node.provider = other
	node.listen()
	node.create(known)
	node.eventually("the pod to fail", func(pod *corev1.Pod) error {
		codes := [2]int32{}
		for i, status := range pod.Status.ContainerStatuses {
			if status.State.Terminated == nil {
				return fmt.Errorf("the status is %+v", status)
			}
			codes[i] = status.State.Terminated.ExitCode
		}
		if pod.Status.Phase != corev1.PodFailed || codes != [2]int32{0, 137} {
			return fmt.Errorf("the pod is %s with %v", pod.Status.Phase, codes)
		}
		return nil
	})
}
