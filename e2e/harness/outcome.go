//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Timeouts for a node that many tests share.
const (
	// StartTimeout is for a pod to run.
	StartTimeout = 2 * time.Minute
	// FinishTimeout is for a short Job to finish.
	FinishTimeout = 3 * time.Minute
	// StatusTimeout is for a policy's status, which has a minimum interval between writes.
	StatusTimeout = 2 * time.Minute
)

// RequireCompleted waits until the Job is Complete, and then does what RequireFinished does. It also fails the test unless the pod succeeded
// and its main container ran exactly once.
func (t *Test) RequireCompleted(job string) *PodRecord {
	t.Helper()
	t.WaitForComplete(job)
	record := t.RequireFinished(job)
	if record.Pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("Pod %s is %s, want Succeeded", record.Pod.Name, record.Pod.Status.Phase)
	}
	if main := record.Container(MainName); main == nil || main.State.Terminated == nil || main.RestartCount != 0 {
		t.Errorf("The main container of pod %s did not run exactly once: %s", record.Pod.Name, describePods([]*PodRecord{record}))
	}
	return record
}

// WaitForComplete waits until the Job is Complete. It fails the test as soon as the Job is Failed.
func (t *Test) WaitForComplete(job string) {
	t.Helper()
	t.WaitForCompleteWithin(job, FinishTimeout)
}

// WaitForCompleteWithin is WaitForComplete with another timeout.
func (t *Test) WaitForCompleteWithin(job string, timeout time.Duration) {
	t.Helper()
	t.waitForCondition(job, timeout, batchv1.JobComplete, batchv1.JobFailed)
}

// WaitForFailed waits until the Job is Failed. It fails the test as soon as the Job is Complete.
func (t *Test) WaitForFailed(job string) {
	t.Helper()
	t.waitForCondition(job, FinishTimeout, batchv1.JobFailed, batchv1.JobComplete)
}

func (t *Test) waitForCondition(name string, timeout time.Duration, wanted, opposite batchv1.JobConditionType) {
	t.Helper()
	contradiction := ""
	t.EventuallySeen(fmt.Sprintf("Job %s to be %s", name, wanted), timeout, func(seen Seen) error {
		job := seen.Job(name)
		if message, ok := JobCondition(job, opposite); ok {
			contradiction = fmt.Sprintf("%s: %s", opposite, message)
			return nil
		}
		if _, ok := JobCondition(job, wanted); ok {
			return nil
		}
		return fmt.Errorf("the Job has not finished: %s", describePods(seen.Pods(name)))
	})
	if contradiction != "" {
		t.Fatalf("Job %s is %s, want %s", name, contradiction, wanted)
	}
}

// JobCondition returns the reason and message of a condition if its status is True.
func JobCondition(job *batchv1.Job, wanted batchv1.JobConditionType) (string, bool) {
	if job == nil {
		return "", false
	}
	for _, condition := range job.Status.Conditions {
		if condition.Type == wanted && condition.Status == corev1.ConditionTrue {
			return strings.TrimSpace(condition.Reason + " " + condition.Message), true
		}
	}
	return "", false
}

// WaitForMain does what WaitForEnd does with the main container.
func (t *Test) WaitForMain(owner string) *corev1.Pod {
	t.Helper()
	return t.WaitForEnd(owner, MainName)
}

// WaitForEnd waits until the container of a pod of the controller is terminated, and returns the pod.
func (t *Test) WaitForEnd(owner, container string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	t.EventuallySeen(fmt.Sprintf("container %s of %s to terminate", container, owner), StartTimeout, func(seen Seen) error {
		for _, record := range seen.Pods(owner) {
			if status := record.Container(container); status != nil && status.State.Terminated != nil {
				pod = record.Pod
				return nil
			}
		}
		return errors.New(seen.Describe(owner))
	})
	return pod
}

// RecordOf returns the oldest pod of the controller.
func (t *Test) RecordOf(owner string) *PodRecord {
	t.Helper()
	var record PodRecord
	t.Recorder.Look(func(seen Seen) { record = *seen.Pods(owner)[0] })
	return &record
}

// WaitForRunning waits until every regular container of the controller's pods runs.
func (t *Test) WaitForRunning(owner string) {
	t.Helper()
	t.EventuallySeen("the containers of "+owner+" to run", StartTimeout, func(seen Seen) error {
		pods := seen.Pods(owner)
		if len(pods) == 0 {
			return errors.New("there is no pod")
		}
		for _, record := range pods {
			if slices.ContainsFunc(record.Pod.Spec.Containers, func(c corev1.Container) bool { return !slices.Contains(record.Running(), c.Name) }) {
				return errors.New(describePods(pods))
			}
		}
		return nil
	})
}

// RequireFinished does what RequireAllFinished does with the controller's only pod.
func (t *Test) RequireFinished(owner string) *PodRecord {
	t.Helper()
	return t.RequireAllFinished(owner, 1)[0]
}

// RequireAllFinished waits until the controller has the number of pods, and all of them are finished and have no running process. It
// fails the test if a pod has left a terminal phase.
func (t *Test) RequireAllFinished(owner string, number int) []*PodRecord {
	t.Helper()
	var finished []*PodRecord
	t.EventuallySeen("the pods of "+owner+" to finish", FinishTimeout, func(seen Seen) error {
		finished = nil
		for _, record := range seen.Pods(owner) {
			if len(t.running(record)) > 0 || !record.Finished() {
				return errors.New(seen.Describe(owner))
			}
			copied := *record
			finished = append(finished, &copied)
		}
		if len(finished) != number {
			return fmt.Errorf("there are %d pods, want %d", len(finished), number)
		}
		return nil
	})
	for _, record := range finished {
		t.RequireNoReversal(record)
	}
	return finished
}

// running returns the running containers of the pod. Without the admission policy that decides outcomes, the API server refuses the status of a
// kubelet that reports an end late (docs/support.md): its runtime then says whether anything of a finished pod runs.
func (t *Test) running(record *PodRecord) []string {
	t.Helper()
	running := record.Running()
	if len(running) == 0 || !record.Finished() || t.ServesOutcomePolicy() {
		return running
	}
	core, err := typedcorev1.NewForConfig(t.Config)
	if err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	request := core.RESTClient().Get().Resource("nodes").Name(record.Pod.Spec.NodeName).SubResource("proxy").Suffix("runningpods/")
	if err := request.Do(t.Context()).Into(pods); err != nil {
		return running
	}
	if slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.UID == record.Pod.UID }) {
		return running
	}
	return nil
}

// RequireNoReversal fails the test if the pod has left a terminal phase.
func (t *Test) RequireNoReversal(record *PodRecord) {
	t.Helper()
	first := slices.IndexFunc(record.Phases, func(change PhaseChange) bool { return isTerminal(change.Phase) })
	if first >= 0 && first < len(record.Phases)-1 {
		t.Errorf("Pod %s left a terminal phase: %s\n%s", record.Pod.Name, record.PhaseLog(), strings.Join(record.States, "\n"))
	}
}

// RequireCRRs fails the test unless the pod has had the wanted number of CRRs, and returns them. The watch of CRRs may be late.
func (t *Test) RequireCRRs(record *PodRecord, wanted int) []CRR {
	t.Helper()
	var crrs []CRR
	if !t.SeenWithin(StatusTimeout, func(seen Seen) error {
		crrs = nil
		for _, crr := range seen.CRRs(record.Pod.Name) {
			crrs = append(crrs, *crr)
		}
		if len(crrs) < wanted {
			return errors.New("too few")
		}
		return nil
	}) || len(crrs) != wanted {
		t.Errorf("Pod %s had %d CRRs, want %d: %+v", record.Pod.Name, len(crrs), wanted, crrs)
	}
	return crrs
}

// RequireImage fails the test unless the container has the image.
func (t *Test) RequireImage(record *PodRecord, container, wanted string) {
	t.Helper()
	if image := record.Image(container); image != wanted {
		t.Errorf("Container %s of pod %s has image %s, want %s", container, record.Pod.Name, image, wanted)
	}
}

// describePods returns the phases and container states of the pods.
func describePods(records []*PodRecord) string {
	if len(records) == 0 {
		return "no pod"
	}
	descriptions := make([]string, 0, len(records))
	for _, record := range records {
		descriptions = append(descriptions, fmt.Sprintf("pod %s (%s): %s", record.Pod.Name, record.PhaseLog(), describeContainers(record.Pod)))
	}
	return strings.Join(descriptions, "; ")
}

func describeContainers(pod *corev1.Pod) string {
	var states []string
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			states = append(states, fmt.Sprintf("%s %s restarts=%d", statuses[i].Name, describeState(statuses[i].State), statuses[i].RestartCount))
		}
	}
	return strings.Join(states, ", ")
}

func describeState(state corev1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "running"
	case state.Terminated != nil:
		return fmt.Sprintf("terminated %d (%s)", state.Terminated.ExitCode, state.Terminated.Reason)
	case state.Waiting != nil:
		return "waiting (" + state.Waiting.Reason + ")"
	default:
		return "unknown"
	}
}

// Describe returns the phases and container states of the controller's pods.
func (s Seen) Describe(owner string) string { return describePods(s.Pods(owner)) }
