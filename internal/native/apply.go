// SPDX-License-Identifier: Apache-2.0

package native

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// noMainContainer is the annotation of a pod in which every container is declared a sidecar.
const noMainContainer = "!" + string(v1alpha1.ReasonNoMainContainer)

// Apply returns the pod as the admission policies change it: the containers to convert follow the existing init
// containers, in the pod's order, with restartPolicy Always, and an annotation records them. It does not change its
// argument, and returns an unchanged copy if there is nothing to convert.
func Apply(pod *corev1.Pod, decision Decision) *corev1.Pod {
	pod = pod.DeepCopy()
	if decision.Reason == v1alpha1.ReasonNoMainContainer {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNativeSidecars, noMainContainer)
	}
	if len(decision.Conversions) == 0 {
		return pod
	}
	for _, conversion := range decision.Conversions {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == conversion.Container })
		container := pod.Spec.Containers[i]
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		pod.Spec.Containers = slices.Delete(pod.Spec.Containers, i, i+1)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNativeSidecars, Record(decision.Conversions))
	return pod
}

// Record returns the value of the annotation that records the conversions. Recorded reads it.
func Record(conversions []Conversion) string {
	records := make([]string, 0, len(conversions))
	for _, conversion := range conversions {
		records = append(records, conversion.Container+"="+conversion.By)
	}
	return strings.Join(records, ",")
}

// maxRequester is the length of the longest reference to a policy.
const maxRequester = len(resolve.KindCluster) + len("/") + validation.DNS1123SubdomainMaxLength

// Recorded returns the native sidecars of a pod that its annotation records as converted, in the pod's order, and on whose
// request. It is nil if there are none. Anyone who can create pods can write the annotation, so it proves nothing; a name
// without a native sidecar is skipped. Time and memory are linear in the size of the pod.
func Recorded(pod *corev1.Pod) []Conversion {
	value := pod.Annotations[v1alpha1.AnnotationNativeSidecars]
	if value == "" || len(value) > maxAnnotationBytes || strings.ContainsAny(value[:1], "?!") {
		return nil
	}
	requesters := map[string]string{}
	for i := range pod.Spec.InitContainers {
		if isNativeSidecar(&pod.Spec.InitContainers[i]) {
			requesters[pod.Spec.InitContainers[i].Name] = ""
		}
	}
	for record := range strings.SplitSeq(value, ",") {
		container, requester, _ := strings.Cut(record, "=")
		if _, native := requesters[container]; native && len(requester) <= maxRequester {
			requesters[container] = requester
		}
	}
	var recorded []Conversion
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if requester := requesters[container.Name]; requester != "" && isNativeSidecar(container) {
			recorded = append(recorded, Conversion{Container: container.Name, By: requester})
		}
	}
	return recorded
}

// WithoutRecorded returns the warnings except those about native sidecars that were converted. Forged records silence such
// a warning, and nothing else: it is about an init container, which the operator never ends.
func WithoutRecorded(warnings []resolve.Warning, recorded []Conversion) []resolve.Warning {
	return slices.DeleteFunc(warnings, func(w resolve.Warning) bool {
		return w.Reason == v1alpha1.ReasonNativeSidecar &&
			slices.ContainsFunc(recorded, func(c Conversion) bool { return c.Container == w.Container })
	})
}

func isNativeSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
