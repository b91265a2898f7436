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

// ReadRecord decodes the pod's annotation into the record. A pod without the annotation leaves the record as it is. The
// error is ErrUnreadable.
func ReadRecord(pod *corev1.Pod, annotation string, record any) error {
	value := pod.Annotations[annotation]
	if value == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(value), record); err != nil {
		return fmt.Errorf("%w: annotation %s: %w", ErrUnreadable, annotation, err)
	}
	return nil
}
