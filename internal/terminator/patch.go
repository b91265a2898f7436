// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewPodPatch returns a strategic merge patch of the pod. The API server rejects it unless the pod has the uid that was read, and the
// resourceVersion unless the caller removes that.
func NewPodPatch(pod *corev1.Pod) *applycorev1.PodApplyConfiguration {
	patch := &applycorev1.PodApplyConfiguration{}
	return patch.WithUID(pod.UID).WithResourceVersion(pod.ResourceVersion)
}

// Raw returns the patch as the client sends it.
func Raw(patch *applycorev1.PodApplyConfiguration) (client.Patch, error) {
	data, err := json.Marshal(patch)
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
