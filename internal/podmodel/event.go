// SPDX-License-Identifier: Apache-2.0

package podmodel

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Types of events that are not types of watch events.
const (
	// Gap means that events of a kind may be missing before the next one.
	Gap = "GAP"
	// Listed is an object as it was listed after a gap.
	Listed = "LISTED"
)

// Event is a line of a recording.
type Event struct {
	At time.Time `json:"at"`
	// Type is Gap, Listed, or the type of a watch event.
	Type string `json:"type"`
	// Kind is Pod, Job, ContainerRecreateRequest or Node.
	Kind string `json:"kind"`
	// Pod is a pod, trimmed. Managers are its field managers.
	Pod      *corev1.Pod `json:"pod,omitempty"`
	Managers []Manager   `json:"managers,omitempty"`
	// Object is an object of another kind.
	Object *Object `json:"object,omitempty"`
}

// Manager is an entry of an object's managedFields.
type Manager struct {
	Name        string      `json:"name"`
	Subresource string      `json:"subresource,omitempty"`
	Time        metav1.Time `json:"time"`
	// Fields is a hash of the managed fields.
	Fields uint32 `json:"fields"`
}

// Trim returns the facts of a pod that the rules are about.
func Trim(pod *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, RestartPolicy: pod.Spec.RestartPolicy, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			Containers: trimContainers(pod.Spec.Containers), InitContainers: trimContainers(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason,
			ContainerStatuses: trimStatuses(pod.Status.ContainerStatuses), InitContainerStatuses: trimStatuses(pod.Status.InitContainerStatuses),
		},
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if slices.Contains(conditionTypes, condition.Type) {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions,
				corev1.PodCondition{Type: condition.Type, Status: condition.Status, Reason: condition.Reason})
		}
	}
	return trimmed
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	var trimmed []corev1.Container
	for i := range containers {
		c := &containers[i]
		trimmed = append(trimmed, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules})
	}
	return trimmed
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var trimmed []corev1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, ContainerID: s.ContainerID, Ready: s.Ready, RestartCount: s.RestartCount,
			State: trimState(s.State), LastTerminationState: trimState(s.LastTerminationState),
		})
	}
	return trimmed
}

// trimState leaves out messages.
func trimState(state corev1.ContainerState) corev1.ContainerState {
	if w := state.Waiting; w != nil {
		state.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
	}
	if t := state.Terminated; t != nil {
		state.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt}
	}
	return state
}

// Managers returns the field managers of an object.
func Managers(object metav1.Object) []Manager {
	var managers []Manager
	for _, entry := range object.GetManagedFields() {
		m := Manager{Name: entry.Manager, Subresource: entry.Subresource}
		if entry.Time != nil {
			m.Time = *entry.Time
		}
		if entry.FieldsV1 != nil {
			hash := fnv.New32a()
			_, _ = hash.Write(entry.FieldsV1.GetRawBytes())
			m.Fields = hash.Sum32()
		}
		managers = append(managers, m)
	}
	return managers
}

// writersOf returns who may have made the last write: those whose entry has changed. A write in the same second as the writer's
// last one may leave its entry unchanged, so if none has changed, these are the writers of the newest second.
func writersOf(before, after []Manager) []Writer {
	var writers []Writer
	var newest time.Time
	for _, m := range after {
		if m.Time.After(newest) {
			newest = m.Time.Time
		}
		same := func(old Manager) bool {
			return old.Name == m.Name && old.Subresource == m.Subresource && old.Fields == m.Fields && old.Time.Equal(&m.Time)
		}
		if !slices.ContainsFunc(before, same) {
			writers = append(writers, writerOf(m.Name))
		}
	}
	if len(writers) > 0 {
		return writers
	}
	for _, m := range after {
		if m.Time.Time.Equal(newest) {
			writers = append(writers, writerOf(m.Name))
		}
	}
	return writers
}

// writerOf returns the writer with this field manager. By default, that is the name of its program.
func writerOf(manager string) Writer {
	switch {
	case manager == "kubelet":
		return Kubelet
	case strings.HasPrefix(manager, "virtual-"):
		return VirtualKubelet
	case manager == "manager" || manager == "sidecar-termination-operator":
		return Operator
	case strings.HasPrefix(manager, "kruise-"):
		return Kruise
	case strings.HasPrefix(manager, "kube-"):
		return Controllers
	default:
		return Others
	}
}
