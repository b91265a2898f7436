// SPDX-License-Identifier: Apache-2.0

package native

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
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
	var records []string
	for _, conversion := range decision.Conversions {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == conversion.Container })
		container := pod.Spec.Containers[i]
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		pod.Spec.Containers = slices.Delete(pod.Spec.Containers, i, i+1)
		records = append(records, conversion.Container+"="+conversion.By)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNativeSidecars, strings.Join(records, ","))
	return pod
}

// Recorded returns the native sidecars of a pod that its annotation records as converted, in the pod's order, and on whose
// request. It is nil if there are none. Whoever can create pods can write the annotation, so it proves nothing; a name
// without a native sidecar is skipped.
func Recorded(pod *corev1.Pod) []Conversion {
	value := pod.Annotations[v1alpha1.AnnotationNativeSidecars]
	if value == "" || len(value) > maxAnnotationBytes || strings.ContainsAny(value[:1], "?!") {
		return nil
	}
	by := map[string]string{}
	for record := range strings.SplitSeq(value, ",") {
		if container, requester, ok := strings.Cut(record, "="); ok {
			by[container] = requester
		}
	}
	var recorded []Conversion
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		requester, ok := by[container.Name]
		if ok && container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			recorded = append(recorded, Conversion{Container: container.Name, By: requester})
		}
	}
	return recorded
}
