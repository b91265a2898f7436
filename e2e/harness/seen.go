//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Seen holds the objects that a recorder has recorded.
type Seen struct {
	jobs map[string]*batchv1.Job
	pods map[types.UID]*PodRecord
	crrs map[types.UID]*CRR
}

// PodRecord is the history of one pod.
type PodRecord struct {
	// Pod is its newest state, even after its deletion.
	Pod *corev1.Pod
	// Phases are its phases, each with the time of the first event that had it.
	Phases []PhaseChange
	// States describe its phases and container states, oldest first.
	States []string
	// Deleted is true when the pod is gone.
	Deleted bool
}

// PhaseChange is one phase of a pod.
type PhaseChange struct {
	Phase corev1.PodPhase
	At    time.Time
}

// CRR is a recorded ContainerRecreateRequest.
type CRR struct {
	Name string
	Pod  string
	// Containers are the names of its containers, sorted.
	Containers []string
	At         time.Time
	// Created is its creationTimestamp.
	Created time.Time
}

// Job returns the newest state of the Job, or nil.
func (s Seen) Job(name string) *batchv1.Job { return s.jobs[name] }

// Pods returns the pods that the controller owns and the pod of that name, oldest first.
func (s Seen) Pods(owner string) []*PodRecord {
	var pods []*PodRecord
	for _, record := range s.pods {
		if controller := metav1.GetControllerOf(record.Pod); record.Pod.Name == owner || controller != nil && controller.Name == owner {
			pods = append(pods, record)
		}
	}
	slices.SortFunc(pods, func(a, b *PodRecord) int {
		return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), strings.Compare(a.Pod.Name, b.Pod.Name))
	})
	return pods
}

// AllPods returns every pod.
func (s Seen) AllPods() []*PodRecord {
	pods := make([]*PodRecord, 0, len(s.pods))
	for _, record := range s.pods {
		pods = append(pods, record)
	}
	slices.SortFunc(pods, func(a, b *PodRecord) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	return pods
}

// CRRs returns the CRRs of the pod, including deleted ones, oldest first.
func (s Seen) CRRs(pod string) []*CRR {
	var crrs []*CRR
	for _, crr := range s.crrs {
		if crr.Pod == pod {
			crrs = append(crrs, crr)
		}
	}
	slices.SortFunc(crrs, func(a, b *CRR) int { return a.At.Compare(b.At) })
	return crrs
}

func (s Seen) observePod(event watch.EventType, pod *corev1.Pod, now time.Time) {
	record := s.pods[pod.UID]
	if record == nil {
		record = &PodRecord{}
		s.pods[pod.UID] = record
	}
	record.Pod, record.Deleted = pod, event == watch.Deleted
	if last := len(record.Phases) - 1; last < 0 || record.Phases[last].Phase != pod.Status.Phase {
		record.Phases = append(record.Phases, PhaseChange{Phase: pod.Status.Phase, At: now})
	}
	record.States = append(record.States, fmt.Sprintf("%.3fs %s: %s", now.Sub(record.Phases[0].At).Seconds(), pod.Status.Phase, describeContainers(pod)))
}

func (s Seen) observeCRR(_ watch.EventType, object *unstructured.Unstructured, now time.Time) {
	if s.crrs[object.GetUID()] != nil {
		return
	}
	crr := &CRR{Name: object.GetName(), At: now, Created: object.GetCreationTimestamp().Time}
	crr.Pod, _, _ = unstructured.NestedString(object.Object, "spec", "podName")
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "containers")
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			crr.Containers = append(crr.Containers, fmt.Sprint(fields["name"]))
		}
	}
	slices.Sort(crr.Containers)
	s.crrs[object.GetUID()] = crr
}

// Finished reports whether the phase is terminal.
func (p *PodRecord) Finished() bool { return isTerminal(p.Pod.Status.Phase) }

// FinishedAt returns when a terminal phase was first recorded.
func (p *PodRecord) FinishedAt() (time.Time, bool) {
	for _, change := range p.Phases {
		if isTerminal(change.Phase) {
			return change.At, true
		}
	}
	return time.Time{}, false
}

// Reversal returns the states of a pod that left a terminal phase, or "".
func (p *PodRecord) Reversal() string {
	for i := 1; i < len(p.Phases); i++ {
		if isTerminal(p.Phases[i-1].Phase) {
			return p.PhaseLog() + "\n" + strings.Join(p.States, "\n")
		}
	}
	return ""
}

// PhaseLog returns the phases with the seconds since the first.
func (p *PodRecord) PhaseLog() string {
	var log strings.Builder
	for i, change := range p.Phases {
		if i > 0 {
			log.WriteString(" -> ")
		}
		fmt.Fprintf(&log, "%s %.1fs", change.Phase, change.At.Sub(p.Phases[0].At).Seconds())
	}
	return log.String()
}

// Container returns the newest status of a regular container, or nil.
func (p *PodRecord) Container(name string) *corev1.ContainerStatus {
	for i := range p.Pod.Status.ContainerStatuses {
		if p.Pod.Status.ContainerStatuses[i].Name == name {
			return &p.Pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// Image returns a regular container's image in the pod's spec.
func (p *PodRecord) Image(container string) string {
	for i := range p.Pod.Spec.Containers {
		if p.Pod.Spec.Containers[i].Name == container {
			return p.Pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// Running returns the names of the running containers, including native sidecars.
func (p *PodRecord) Running() []string {
	var running []string
	for _, statuses := range [][]corev1.ContainerStatus{p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].State.Running != nil {
				running = append(running, statuses[i].Name)
			}
		}
	}
	return running
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
