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

// Seen is what a recorder has seen.
type Seen struct {
	jobs     map[string]*batchv1.Job
	pods     map[types.UID]*PodRecord
	requests map[types.UID]*Request
}

// PodRecord is the history of one pod.
type PodRecord struct {
	// Pod is its newest state, and stays when the pod is deleted.
	Pod *corev1.Pod
	// Phases are the phases that it went through, each with the time at which it was seen first.
	Phases []PhaseChange
	// States are its phases and container states in words, oldest first.
	States []string
	// Deleted is true when the pod is gone.
	Deleted bool
}

// PhaseChange is one phase of a pod.
type PhaseChange struct {
	Phase corev1.PodPhase
	At    time.Time
}

// Request is a ContainerRecreateRequest that was seen.
type Request struct {
	Name string
	Pod  string
	// Containers are the containers that it names, sorted.
	Containers []string
	At         time.Time
	// Created is the same by the clock of the API server, in whole seconds.
	Created time.Time
}

// Job returns the newest state of a Job, or nil.
func (s Seen) Job(name string) *batchv1.Job { return s.jobs[name] }

// Pods returns the pods of a controller, and the pod of that name itself, oldest first.
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

// Requests returns the requests for a pod, oldest first, among them those that have been deleted.
func (s Seen) Requests(pod string) []*Request {
	var requests []*Request
	for _, request := range s.requests {
		if request.Pod == pod {
			requests = append(requests, request)
		}
	}
	slices.SortFunc(requests, func(a, b *Request) int { return a.At.Compare(b.At) })
	return requests
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

func (s Seen) observeRequest(_ watch.EventType, object *unstructured.Unstructured, now time.Time) {
	if s.requests[object.GetUID()] != nil {
		return
	}
	request := &Request{Name: object.GetName(), At: now, Created: object.GetCreationTimestamp().Time}
	request.Pod, _, _ = unstructured.NestedString(object.Object, "spec", "podName")
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "containers")
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			request.Containers = append(request.Containers, fmt.Sprint(fields["name"]))
		}
	}
	slices.Sort(request.Containers)
	s.requests[object.GetUID()] = request
}

// Finished reports whether the phase is terminal.
func (p *PodRecord) Finished() bool { return isTerminal(p.Pod.Status.Phase) }

// FinishedAt returns when a terminal phase was seen first.
func (p *PodRecord) FinishedAt() (time.Time, bool) {
	for _, change := range p.Phases {
		if isTerminal(change.Phase) {
			return change.At, true
		}
	}
	return time.Time{}, false
}

// Reversal shows the states of a pod whose phase changed after it had been terminal, or returns "".
func (p *PodRecord) Reversal() string {
	for i := 1; i < len(p.Phases); i++ {
		if isTerminal(p.Phases[i-1].Phase) {
			return p.PhaseLog() + "\n" + strings.Join(p.States, "\n")
		}
	}
	return ""
}

// PhaseLog shows the phases with the seconds since the first.
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

// Image returns the image that the spec of the pod has for a regular container.
func (p *PodRecord) Image(container string) string {
	for i := range p.Pod.Spec.Containers {
		if p.Pod.Spec.Containers[i].Name == container {
			return p.Pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// Running returns the regular and native sidecar containers that have a process.
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
