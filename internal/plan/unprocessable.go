// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// MaxContainers is how many regular and init containers a pod may have that is acted on, and how many statuses of regular
// containers. What is done about a pod takes time that grows with products of these numbers, and Kubernetes has no limit.
const MaxContainers = 128

// Unprocessable returns why the pod cannot be acted on, whatever is declared: it is too large, or it is a Stub. It returns
// an empty reason for every other pod.
func Unprocessable(pod *corev1.Pod) (v1alpha1.Reason, string) {
	containers, statuses := len(pod.Spec.Containers)+len(pod.Spec.InitContainers), len(pod.Status.ContainerStatuses)
	switch {
	case isStub(pod):
		return v1alpha1.Reason(pod.Status.Reason), pod.Status.Message
	case containers > MaxContainers:
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d containers; pods with more than %d are left alone", containers, MaxContainers)
	case statuses > MaxContainers:
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d container statuses; pods with more than %d are left alone", statuses, MaxContainers)
	}
	return "", ""
}

// Stub returns a pod with the identity of the given one and why it cannot be acted on, and nothing else: what a cache
// holds in its place. Nobody can forge one, for the API server accepts no pod without a restartPolicy.
func Stub(pod *corev1.Pod, reason v1alpha1.Reason, message string) *corev1.Pod {
	stub := &corev1.Pod{TypeMeta: pod.TypeMeta, Status: corev1.PodStatus{Reason: string(reason), Message: message}}
	stub.Namespace, stub.Name, stub.UID, stub.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	return stub
}

func isStub(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == "" && pod.Status.Reason != "" }

// podUnprocessable leaves a pod alone that is too large, or of which nothing is known.
func podUnprocessable(s *situation) *Decision {
	reason, message := Unprocessable(s.Pod)
	if reason == "" {
		return nil
	}
	return ignored(reason, message)
}
