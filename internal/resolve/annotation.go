// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Limits of the annotation v1alpha1.AnnotationSidecars.
const (
	// maxListed is how many names it may have.
	maxListed = 32
	// MaxListBytes is its length in bytes: 32 names of the longest kind with a comma and some spaces each.
	MaxListBytes = 2560
)

// readAnnotation returns the containers that the pod's annotation declares as sidecars. As in a policy, a name that the pod does not have
// is ignored. An annotation beyond the limits declares none.
func readAnnotation(pod *corev1.Pod) (names []string, warnings []Warning) {
	value := pod.Annotations[v1alpha1.AnnotationSidecars]
	var invalid string
	switch {
	case strings.TrimSpace(value) == "":
		return nil, nil
	case len(value) > MaxListBytes:
		invalid = fmt.Sprintf("it has more than %d bytes", MaxListBytes)
	case strings.Count(value, ",") >= maxListed:
		invalid = fmt.Sprintf("it lists more than %d containers", maxListed)
	default:
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, strings.TrimSpace(name))
		}
		return names, nil
	}
	return nil, []Warning{{Reason: v1alpha1.ReasonInvalidSidecars, Message: "annotation " + v1alpha1.AnnotationSidecars + " declares no sidecar: " + invalid}}
}

// Listed returns the names in the pod's annotation. An annotation beyond the limits has none.
func Listed(pod *corev1.Pod) []string {
	names, _ := readAnnotation(pod)
	return names
}

// IsNativeSidecar reports whether the init container is a native sidecar: Kubernetes ends it after the regular containers.
func IsNativeSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
