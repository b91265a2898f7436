// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ErrUnreadable means that an annotation in which the operator keeps a record cannot be read, because somebody has
// changed it. Repeating the read does not help until the pod changes again.
var ErrUnreadable = errors.New("unreadable record on the pod")

// recordPerContainer has room for a container's name, for the longest image name that a registry takes, and for a few
// numbers.
const recordPerContainer = 1 << 10

// MaxRecord bounds the bytes of a record that is read. The operator writes none that is longer.
func MaxRecord(pod *corev1.Pod) int {
	return (len(pod.Spec.Containers) + 1) * recordPerContainer
}

// ContainerNames returns the names of the pod's regular containers. What somebody else has written about any other container
// does not count.
func ContainerNames(pod *corev1.Pod) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		names[pod.Spec.Containers[i].Name] = true
	}
	return names
}

// ReadRecord decodes the pod's annotation into the record. A pod without the annotation leaves the record as it is. The
// error is ErrUnreadable.
func ReadRecord(pod *corev1.Pod, annotation string, record any) error {
	value := pod.Annotations[annotation]
	if value == "" {
		return nil
	}
	if len(value) > MaxRecord(pod) {
		return fmt.Errorf("%w: annotation %s is longer than the operator makes it", ErrUnreadable, annotation)
	}
	if err := json.Unmarshal([]byte(value), record); err != nil {
		return fmt.Errorf("%w: annotation %s: %w", ErrUnreadable, annotation, err)
	}
	return nil
}
