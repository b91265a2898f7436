// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// Trim returns a pod with the fields that internal/resolve, internal/plan and the terminators read: identity, labels, the operator's
// own annotations and the mirror annotation, native sidecars, scheduling and restart fields, the convention's environment variables,
// what decides whether a quick-exit image covers a container, container states, reason and two types of conditions. A pod on which
// the operator cannot act becomes a stub. The result may share memory with the given pod.
//
// One goroutine runs it for every watch event of every unfinished pod, on input that users control. Its time and memory are
// therefore linear in the size of the pod (docs/reliability.md, Hostile input).
func Trim(pod *corev1.Pod) *corev1.Pod {
	if reason, message := plan.Unprocessable(pod); reason != "" {
		return plan.Stub(pod, reason, message)
	}
	trimmed := &corev1.Pod{
		ObjectMeta: trimMeta(pod),
		Spec: corev1.PodSpec{
			NodeName:                      pod.Spec.NodeName,
			RestartPolicy:                 pod.Spec.RestartPolicy,
			TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			Containers:                    make([]corev1.Container, 0, len(pod.Spec.Containers)),
			InitContainers:                nativeSidecars(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase:             pod.Status.Phase,
			Conditions:        trimConditions(pod.Status.Conditions),
			ContainerStatuses: make([]corev1.ContainerStatus, 0, len(pod.Status.ContainerStatuses)),
		},
	}
	if pod.Status.Reason != "" {
		trimmed.Status.Reason = some
	}
	if pod.Spec.ActiveDeadlineSeconds != nil {
		trimmed.Spec.ActiveDeadlineSeconds, trimmed.Status.StartTime = pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		trimmed.Spec.ResourceClaims = someClaim
	}
	for i := range pod.Spec.Containers {
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, trimContainer(&pod.Spec.Containers[i]))
	}
	for i := range pod.Status.ContainerStatuses {
		trimmed.Status.ContainerStatuses = append(trimmed.Status.ContainerStatuses, trimContainerStatus(&pod.Status.ContainerStatuses[i]))
	}
	return trimmed
}

// someClaim replaces all resource claims, because only their presence matters.
var someClaim = []corev1.PodResourceClaim{{}}

// nativeSidecars keeps the native sidecars, and other init containers with restart rules.
func nativeSidecars(initContainers []corev1.Container) []corev1.Container {
	var native []corev1.Container
	for i := range initContainers {
		if container := &initContainers[i]; container.RestartPolicy != nil {
			native = append(native, corev1.Container{
				Name: container.Name, RestartPolicy: container.RestartPolicy, RestartPolicyRules: container.RestartPolicyRules,
			})
		}
	}
	return native
}

// trimConditions keeps two types of conditions, and of each type the first that is true and the first that is not: the API
// server accepts duplicates.
func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for i := range conditions {
		condition := corev1.PodCondition{Type: conditions[i].Type, Status: conditions[i].Status}
		if condition.Type != corev1.AllContainersRestarting && condition.Type != corev1.DisruptionTarget {
			continue
		}
		holds := condition.Status == corev1.ConditionTrue
		if !slices.ContainsFunc(kept, func(c corev1.PodCondition) bool {
			return c.Type == condition.Type && (c.Status == corev1.ConditionTrue) == holds
		}) {
			kept = append(kept, condition)
		}
	}
	return kept
}

func trimMeta(pod *corev1.Pod) metav1.ObjectMeta {
	meta := &pod.ObjectMeta
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
		Labels:            meta.Labels,
		Annotations:       trimAnnotations(pod),
	}
}

// trimAnnotations keeps what the operator reads. It cuts a value that is too long to one byte more than the limit, so that it stays too
// long.
func trimAnnotations(pod *corev1.Pod) map[string]string {
	if len(pod.Annotations) == 0 {
		return nil
	}
	kept, maxRecord := map[string]string{}, terminator.MaxRecord(pod)
	keep := func(key, value string, limit int) {
		if len(value) > limit {
			value = value[:limit+1]
		}
		kept[key] = value
	}
	for _, key := range []string{
		v1alpha1.AnnotationImageSwap, v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd, v1alpha1.AnnotationMainContainers,
	} {
		if value, ok := pod.Annotations[key]; ok {
			keep(key, value, maxRecord)
		}
	}
	if value, ok := pod.Annotations[v1alpha1.AnnotationSidecars]; ok {
		keep(v1alpha1.AnnotationSidecars, value, resolve.MaxListBytes)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		kept[corev1.MirrorPodAnnotationKey] = "" // only its presence matters
	}
	return kept
}

func trimContainer(container *corev1.Container) corev1.Container {
	trimmed := quickexit.Trim(container)
	trimmed.Name = container.Name
	trimmed.Image = container.Image
	for _, variable := range resolve.ConventionVariables(container) {
		trimmed.Env = append(trimmed.Env, trimVariable(variable))
	}
	trimmed.RestartPolicy = container.RestartPolicy
	trimmed.RestartPolicyRules = container.RestartPolicyRules
	return trimmed
}

// elsewhere replaces every valueFrom, because the operator cannot read any.
var elsewhere = &corev1.EnvVarSource{}

// trimVariable cuts a value that is longer than any valid one, so that it stays invalid.
func trimVariable(variable *corev1.EnvVar) corev1.EnvVar {
	trimmed := corev1.EnvVar{Name: variable.Name, Value: variable.Value}
	if len(trimmed.Value) > resolve.MaxImage {
		trimmed.Value = trimmed.Value[:resolve.MaxImage+1]
	}
	if variable.ValueFrom != nil {
		trimmed.ValueFrom = elsewhere
	}
	return trimmed
}

// some replaces container IDs and the reason of a status, because only their presence matters.
const some = "some"

func trimContainerStatus(status *corev1.ContainerStatus) corev1.ContainerStatus {
	trimmed := corev1.ContainerStatus{
		Name:         status.Name,
		RestartCount: status.RestartCount,
	}
	if status.ContainerID != "" {
		trimmed.ContainerID = some
	}
	switch {
	case status.State.Running != nil:
		trimmed.State.Running = &corev1.ContainerStateRunning{StartedAt: status.State.Running.StartedAt}
	case status.State.Terminated != nil:
		end := status.State.Terminated
		trimmed.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: end.ExitCode, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt}
	case status.State.Waiting != nil:
		trimmed.State.Waiting = &corev1.ContainerStateWaiting{Reason: status.State.Waiting.Reason}
	}
	return trimmed
}

// maxFeatures is how many of a node's declared features are kept. Kubernetes 1.37 has ten. maxNodeText is the length of the longest
// kubelet version or feature that is kept.
const (
	maxFeatures = 256
	maxNodeText = 256
)

// trimNode keeps what determines a node's kind, and what it reports about its kubelet. Any other object is returned unchanged.
func trimNode(object any) any {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object
	}
	version := node.Status.NodeInfo.KubeletVersion
	if len(version) > maxNodeText {
		version = ""
	}
	declared := node.Status.DeclaredFeatures
	var features []string
	for _, feature := range declared[:min(len(declared), maxFeatures)] {
		if len(feature) <= maxNodeText {
			features = append(features, feature)
		}
	}
	return &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		},
		Spec:   corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}, DeclaredFeatures: features},
	}
}
