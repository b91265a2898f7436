// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	// maxContainers is the number of regular and init containers up to which a pod is converted.
	maxContainers = 128
	// maxAnnotationBytes limits the pod's other annotations. The API server denies pods with more than 256 KiB, and the
	// annotation about conversion takes at most 64 KiB.
	maxAnnotationBytes = 128 << 10
	optOut             = "false"
)

// VirtualNodeMarks recognize pods that are meant for virtual nodes: a pod with one of the marks is not converted, because
// virtual kubelets may run init containers one after another. When a pod is created, the API server knows nothing else about its node.
type VirtualNodeMarks struct {
	PodLabels, NamespaceLabels, NodeSelector map[string]string
	// Tolerations are keys.
	Tolerations, Schedulers []string
}

// DefaultVirtualNodeMarks covers virtual-kubelet and Alibaba Cloud's ECI.
func DefaultVirtualNodeMarks() VirtualNodeMarks {
	return VirtualNodeMarks{
		PodLabels:       map[string]string{"alibabacloud.com/eci": "true"},
		NamespaceLabels: map[string]string{"alibabacloud.com/eci": "true"},
		NodeSelector:    map[string]string{"type": "virtual-kubelet"},
		Tolerations:     []string{"virtual-kubelet.io/provider"},
		Schedulers:      []string{"eci-scheduler"},
	}
}

// gate returns why the whole pod is left alone, or "".
type gate func(pod *corev1.Pod, namespaceLabels map[string]string, options Options) (v1alpha1.Reason, string)

// gates are tried in this order.
var gates = []gate{restartPolicyAlways, mirrorPod, optedOut, annotationPresent, tooLarge, forVirtualNode, nodeNameSet}

func restartPolicyAlways(pod *corev1.Pod, _ map[string]string, _ Options) (v1alpha1.Reason, string) {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		return "", ""
	}
	return v1alpha1.ReasonRestartPolicyAlways, "the pod's restartPolicy is Always; only pods with Never or OnFailure are converted"
}

func mirrorPod(pod *corev1.Pod, _ map[string]string, _ Options) (v1alpha1.Reason, string) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return "", ""
	}
	return v1alpha1.ReasonMirrorPod, "the pod mirrors a static pod, which the kubelet runs from a file on its node"
}

func optedOut(pod *corev1.Pod, namespaceLabels map[string]string, _ Options) (v1alpha1.Reason, string) {
	switch optOut {
	case pod.Labels[v1alpha1.LabelNativeConversion]:
		return v1alpha1.ReasonConversionOptedOut, fmt.Sprintf("the pod has label %s=false", v1alpha1.LabelNativeConversion)
	case namespaceLabels[v1alpha1.LabelNativeConversion]:
		return v1alpha1.ReasonConversionOptedOut, fmt.Sprintf("the pod's namespace has label %s=false", v1alpha1.LabelNativeConversion)
	}
	return "", ""
}

func annotationPresent(pod *corev1.Pod, _ map[string]string, _ Options) (v1alpha1.Reason, string) {
	if _, present := pod.Annotations[v1alpha1.AnnotationNativeSidecars]; !present {
		return "", ""
	}
	return v1alpha1.ReasonAnnotationPresent, fmt.Sprintf("the pod was created with annotation %s; create it without", v1alpha1.AnnotationNativeSidecars)
}

func tooLarge(pod *corev1.Pod, _ map[string]string, _ Options) (v1alpha1.Reason, string) {
	if n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers); n > maxContainers {
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d containers; pods with more than %d are not converted", n, maxContainers)
	}
	size := 0
	for key, value := range pod.Annotations {
		size += len(key) + len(value)
	}
	if size > maxAnnotationBytes {
		return v1alpha1.ReasonPodTooLarge, fmt.Sprintf("the pod has %d bytes of annotations; pods with more than %d are not converted", size, maxAnnotationBytes)
	}
	return "", ""
}

func forVirtualNode(pod *corev1.Pod, namespaceLabels map[string]string, options Options) (v1alpha1.Reason, string) {
	marks := options.VirtualNodes
	var mark string
	switch {
	case overlap(marks.PodLabels, pod.Labels):
		mark = "a label"
	case overlap(marks.NamespaceLabels, namespaceLabels):
		mark = "a label of its namespace"
	case overlap(marks.NodeSelector, pod.Spec.NodeSelector):
		mark = "its nodeSelector"
	case slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return slices.Contains(marks.Tolerations, t.Key) }):
		mark = "a toleration"
	case slices.Contains(marks.Schedulers, pod.Spec.SchedulerName):
		mark = "its schedulerName"
	case requiresVirtualNode(pod.Spec.Affinity):
		mark = "its node affinity"
	default:
		return "", ""
	}
	return v1alpha1.ReasonVirtualNode, fmt.Sprintf("the pod is meant for a virtual node, according to %s", mark)
}

func overlap(marks, labels map[string]string) bool {
	for key, value := range marks {
		if actual, ok := labels[key]; ok && actual == value {
			return true
		}
	}
	return false
}

// requiresVirtualNode reports whether a term of the required node affinity selects nodes with label type=virtual-kubelet.
func requiresVirtualNode(affinity *corev1.Affinity) bool {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == "type" && r.Operator == corev1.NodeSelectorOpIn && slices.Contains(r.Values, "virtual-kubelet")
		})
	})
}

func nodeNameSet(pod *corev1.Pod, _ map[string]string, _ Options) (v1alpha1.Reason, string) {
	if pod.Spec.NodeName == "" {
		return "", ""
	}
	return v1alpha1.ReasonNodeNameSet, "the pod names its node, whose kind is unknown when the pod is created"
}
