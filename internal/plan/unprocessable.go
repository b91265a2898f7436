// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// MaxContainers bounds the regular and init containers of a pod that the operator handles, and the statuses of its
// regular containers. The time per pod grows with products of these numbers, and Kubernetes has no limit.
const MaxContainers = 128

// Unprocessable returns why the operator ignores the pod whatever policies say: it is too large, or it is a Stub. It
// returns an empty reason for every other pod.
func Unprocessable(pod *corev1.Pod) (v1alpha1.Reason, string) {
	containers, statuses := len(pod.Spec.Containers)+len(pod.Spec.InitContainers), len(pod.Status.ContainerStatuses)
	switch {
	case isStub(pod):
		return v1alpha1.ReasonPodTooLarge, pod.Status.Message
	case containers > MaxContainers:
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d containers; the operator ignores pods with more than %d", containers, MaxContainers)
	case statuses > MaxContainers:
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d container statuses; the operator ignores pods with more than %d", statuses, MaxContainers)
	}
	return "", ""
}

// Stub returns what a cache holds instead of a pod that is too large: its identity and the message, nothing else. Users cannot
// forge one, because the API server accepts no pod without a restartPolicy.
func Stub(pod *corev1.Pod, message string) *corev1.Pod {
	stub := &corev1.Pod{Status: corev1.PodStatus{Reason: string(v1alpha1.ReasonPodTooLarge), Message: message}}
	stub.Namespace, stub.Name, stub.UID, stub.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	return stub
}

func isStub(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == "" && pod.Status.Reason != "" }

// podUnprocessable ignores a pod that is too large, and a Stub.
func podUnprocessable(s *situation) *Decision {
	reason, message := Unprocessable(s.Pod)
	if reason == "" {
		return nil
	}
	return ignored(reason, message)
}
