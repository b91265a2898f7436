// SPDX-License-Identifier: Apache-2.0

package provider

import (
	corev1 "k8s.io/api/core/v1"
)

// summarise derives phase and conditions from the container statuses, as the kubelet does.
func summarise(pod *corev1.Pod) {
	ready := true
	ended, failed, unstarted := 0, 0, 0
	for _, status := range pod.Status.ContainerStatuses {
		ready = ready && status.Ready
		switch end := status.State.Terminated; {
		case end != nil:
			ended++
			if end.ExitCode != 0 {
				failed++
			}
		case status.State.Waiting != nil && status.LastTerminationState.Terminated == nil:
			unstarted++
		}
	}
	switch {
	case ended == len(pod.Status.ContainerStatuses) && failed == 0:
		pod.Status.Phase = corev1.PodSucceeded
	case ended == len(pod.Status.ContainerStatuses):
		pod.Status.Phase = corev1.PodFailed
	case unstarted > 0:
		pod.Status.Phase = corev1.PodPending
	default:
		pod.Status.Phase = corev1.PodRunning
	}
	setCondition(pod, corev1.PodInitialized, true)
	setCondition(pod, corev1.ContainersReady, ready)
	setCondition(pod, corev1.PodReady, ready)
}

func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, holds bool) {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == kind {
			condition.Status = status
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: *pod.Status.StartTime})
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}
