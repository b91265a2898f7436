// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PodPatch is a strategic merge patch of a pod. The API server rejects it unless the pod has the uid that was read, and the
// resourceVersion if that is set.
type PodPatch struct {
	Metadata PodPatchMetadata `json:"metadata"`
	Spec     *PodPatchSpec    `json:"spec,omitempty"`
	Status   *PodPatchStatus  `json:"status,omitempty"`
}

// PodPatchMetadata holds the preconditions, and the labels and annotations to merge.
type PodPatchMetadata struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

// PodPatchSpec merges containers by name.
type PodPatchSpec struct {
	Containers []PodPatchContainer `json:"containers"`
}

// PodPatchContainer changes the image of one container.
type PodPatchContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// PodPatchStatus sets the phase, unless it is empty, and merges conditions by type.
type PodPatchStatus struct {
	Phase      corev1.PodPhase       `json:"phase,omitempty"`
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
}

// NewPodPatch returns a patch with the pod's uid and resourceVersion as preconditions.
func NewPodPatch(pod *corev1.Pod) PodPatch {
	return PodPatch{Metadata: PodPatchMetadata{UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
}

// Raw returns the patch as the client sends it.
func (p PodPatch) Raw() (client.Patch, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode pod patch: %w", err)
	}
	return client.RawPatch(types.StrategicMergePatchType, data), nil
}

// PatchTarget returns an object with the pod's name for the client to patch. The client writes the server's answer to it,
// so it must not be the pod that was read, which a cache may share.
func PatchTarget(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}
