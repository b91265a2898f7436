// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ErrInvalidAnnotation means that an annotation that records attempts is corrupt, because somebody changed it. Retrying
// does not help until the pod changes.
var ErrInvalidAnnotation = errors.New("invalid annotation on the pod")

// recordPerContainer is enough bytes for a container's name, the longest image reference of a registry, and a few numbers.
const recordPerContainer = 1 << 10

// MaxRecord is the maximum size of a record in bytes. The operator neither reads nor writes longer ones.
func MaxRecord(pod *corev1.Pod) int { return RecordSize(len(pod.Spec.Containers)) }

// RecordSize is the maximum size of a record about so many containers.
func RecordSize(containers int) int { return (containers + 1) * recordPerContainer }

// ContainerNames returns the names of the pod's regular containers. Records about other containers are ignored: somebody
// else wrote them.
func ContainerNames(pod *corev1.Pod) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		names[pod.Spec.Containers[i].Name] = true
	}
	return names
}

// ReadRecord decodes the pod's annotation into the record. Without the annotation it leaves the record unchanged. Every
// error wraps ErrInvalidAnnotation.
func ReadRecord(pod *corev1.Pod, annotation string, record any) error {
	value := pod.Annotations[annotation]
	if value == "" {
		return nil
	}
	if len(value) > MaxRecord(pod) {
		return fmt.Errorf("%w: annotation %s is longer than the operator writes it", ErrInvalidAnnotation, annotation)
	}
	if err := json.Unmarshal([]byte(value), record); err != nil {
		return fmt.Errorf("%w: annotation %s: %w", ErrInvalidAnnotation, annotation, err)
	}
	return nil
}
