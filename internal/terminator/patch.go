// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PodPatch is a strategic merge patch of a pod, as the client sends it.
type PodPatch struct {
	*applycorev1.PodApplyConfiguration
}

// NewPodPatch returns a patch of the pod. The API server rejects it unless the pod has the uid that was read, and the resourceVersion unless
// the caller removes that.
func NewPodPatch(pod *corev1.Pod) PodPatch {
	patch := &applycorev1.PodApplyConfiguration{}
	return PodPatch{patch.WithUID(pod.UID).WithResourceVersion(pod.ResourceVersion)}
}

// Type implements client.Patch.
func (p PodPatch) Type() types.PatchType { return types.StrategicMergePatchType }

// Data implements client.Patch.
func (p PodPatch) Data(client.Object) ([]byte, error) { return json.Marshal(p.PodApplyConfiguration) }

// PatchTarget returns an object with the pod's name for the client to patch. The client writes the server's answer to it,
// so it must not be the pod that was read, which a cache may share.
func PatchTarget(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// ErrInvalidAnnotation means that an annotation that records attempts is corrupt, because somebody changed it. Retrying
// does not help until the pod changes.
var ErrInvalidAnnotation = errors.New("invalid annotation on the pod")

// recordPerContainer is enough bytes for a container's name, the longest image reference of a registry, and a few numbers.
const recordPerContainer = 1 << 10

// RecordSize is the maximum size in bytes of a record about so many containers. The operator neither reads nor writes longer ones.
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
