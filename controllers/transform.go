// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// trimPod keeps what internal/resolve, internal/plan and the terminators read of a pod: identity, labels, the operator's
// own annotations, scheduling and restart fields, the convention's environment variables, what tells whether a quick-exit
// image covers a container, container states and three kinds of conditions. It returns anything but a pod as it is. What is
// kept shares memory with other pods, and must not be changed.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: trimMeta(pod.ObjectMeta, terminator.MaxRecord(pod)),
		Spec: corev1.PodSpec{
			NodeName:                      intern(pod.Spec.NodeName),
			RestartPolicy:                 intern(pod.Spec.RestartPolicy),
			TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			Containers:                    make([]corev1.Container, 0, len(pod.Spec.Containers)),
		},
		Status: corev1.PodStatus{Phase: intern(pod.Status.Phase)},
	}
	for i := range pod.Spec.Containers {
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, trimContainer(&pod.Spec.Containers[i]))
	}
	trimmed.Spec.Containers = shareContainers(trimmed.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if container := &pod.Spec.InitContainers[i]; container.RestartPolicy != nil {
			trimmed.Spec.InitContainers = append(trimmed.Spec.InitContainers,
				corev1.Container{Name: container.Name, RestartPolicy: container.RestartPolicy})
		}
	}
	for i := range pod.Status.ContainerStatuses {
		trimmed.Status.ContainerStatuses = append(trimmed.Status.ContainerStatuses, trimContainerStatus(&pod.Status.ContainerStatuses[i]))
	}
	for _, condition := range pod.Status.Conditions {
		switch {
		case condition.Type == corev1.AllContainersRestarting, condition.Type == v1alpha1.PodConditionSidecarTerminated:
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.PodCondition{Type: condition.Type, Status: condition.Status})
		case condition.Type == corev1.PodReady && condition.Reason == plan.PodCompleted:
			trimmed.Status.Conditions = append(trimmed.Status.Conditions,
				corev1.PodCondition{Type: condition.Type, Status: condition.Status, Reason: plan.PodCompleted})
		}
	}
	return trimmed, nil
}

// trimMeta keeps of an annotation that is longer than any record as much as tells that it is.
func trimMeta(meta metav1.ObjectMeta, maxRecord int) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         intern(meta.Namespace),
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
		Labels:            internLabels(meta.Labels),
	}
	for _, key := range []string{v1alpha1.AnnotationImageSwap, v1alpha1.AnnotationPodPhase, v1alpha1.AnnotationPhaseGuard} {
		if value, ok := meta.Annotations[key]; ok {
			if trimmed.Annotations == nil {
				trimmed.Annotations = map[string]string{}
			}
			if len(value) > maxRecord {
				value = strings.Clone(value[:maxRecord+1])
			}
			trimmed.Annotations[key] = value
		}
	}
	return trimmed
}

func trimContainer(container *corev1.Container) corev1.Container {
	trimmed := quickexit.Trim(container, resolve.IsConventionVariable)
	trimmed.Name = intern(container.Name)
	trimmed.Image = intern(container.Image)
	for i := range trimmed.Env {
		trimmed.Env[i].Name, trimmed.Env[i].Value = intern(trimmed.Env[i].Name), intern(trimmed.Env[i].Value)
	}
	for i := range trimmed.Command {
		trimmed.Command[i] = intern(trimmed.Command[i])
	}
	trimmed.RestartPolicy = container.RestartPolicy
	trimmed.RestartPolicyRules = container.RestartPolicyRules
	return trimmed
}

// someContainer stands for every id of a container: whether there is one tells whether it has been created.
const someContainer = "some"

func trimContainerStatus(status *corev1.ContainerStatus) corev1.ContainerStatus {
	trimmed := corev1.ContainerStatus{
		Name:         intern(status.Name),
		RestartCount: status.RestartCount,
	}
	if status.ContainerID != "" {
		trimmed.ContainerID = someContainer
	}
	switch {
	case status.State.Running != nil:
		trimmed.State.Running = &corev1.ContainerStateRunning{StartedAt: status.State.Running.StartedAt}
	case status.State.Terminated != nil:
		end := status.State.Terminated
		trimmed.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: end.ExitCode, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt}
	case status.State.Waiting != nil:
		trimmed.State.Waiting = &corev1.ContainerStateWaiting{Reason: intern(status.State.Waiting.Reason)}
	}
	return trimmed
}

// trimNode keeps what tells the kind of a node.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		},
		Spec: corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)},
	}, nil
}
