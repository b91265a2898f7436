//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Timeouts for a node that is shared by many tests.
const (
	// StartTimeout is for a pod to run.
	StartTimeout = 2 * time.Minute
	// FinishTimeout is for a short Job to finish.
	FinishTimeout = 3 * time.Minute
	// StatusTimeout is for the status of a policy, which is written at most once in some seconds.
	StatusTimeout = 2 * time.Minute
)

// WaitForComplete waits until the Job is Complete, and fails the test at once when it is Failed.
func (t *Test) WaitForComplete(job string) {
	t.Helper()
	t.WaitForCompleteWithin(job, FinishTimeout)
}

// WaitForCompleteWithin is WaitForComplete with a timeout of the caller's.
func (t *Test) WaitForCompleteWithin(job string, timeout time.Duration) {
	t.Helper()
	t.waitForCondition(job, timeout, batchv1.JobComplete, batchv1.JobFailed)
}

// WaitForFailed waits until the Job is Failed, and fails the test at once when it is Complete.
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
		t.Fatalf("Job %s was to be %s and is %s", name, wanted, contradiction)
	}
}

// JobCondition returns the reason and message of a condition that is true.
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

// WaitForMain waits until the main container of the controller's pod is terminated.
func (t *Test) WaitForMain(owner string) {
	t.Helper()
	t.EventuallySeen("the main container of "+owner+" to end", StartTimeout, func(seen Seen) error {
		for _, record := range seen.Pods(owner) {
			if main := record.Container(MainName); main != nil && main.State.Terminated != nil {
				return nil
			}
		}
		return fmt.Errorf("it has not ended: %s", describePods(seen.Pods(owner)))
	})
}

// WaitForRunning waits until every container of the controller's pods runs.
func (t *Test) WaitForRunning(owner string) {
	t.Helper()
	t.EventuallySeen("the containers of "+owner+" to run", StartTimeout, func(seen Seen) error {
		pods := seen.Pods(owner)
		if len(pods) == 0 {
			return fmt.Errorf("there is no pod")
		}
		for _, record := range pods {
			if len(record.Running()) != len(record.Pod.Spec.Containers) {
				return fmt.Errorf("not all run: %s", describePods(pods))
			}
		}
		return nil
	})
}

// RequireSucceeded waits until no process of the controller's only pod is left, and fails the test unless the pod
// succeeded, its main container ran exactly once and no terminal phase was taken back.
func (t *Test) RequireSucceeded(owner string) *PodRecord {
	t.Helper()
	record := t.RequireFinished(owner)
	if record.Pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("Pod %s was to be Succeeded and is %s", record.Pod.Name, record.Pod.Status.Phase)
	}
	if main := record.Container(MainName); main == nil || main.State.Terminated == nil || main.RestartCount != 0 {
		t.Errorf("The main container of pod %s was to run exactly once: %s", record.Pod.Name, describePods([]*PodRecord{record}))
	}
	return record
}

// RequireFinished waits until no process of the controller's only pod is left, and fails the test when a terminal phase
// was taken back.
func (t *Test) RequireFinished(owner string) *PodRecord {
	t.Helper()
	var finished PodRecord
	t.EventuallySeen("the processes of "+owner+" to be gone", FinishTimeout, func(seen Seen) error {
		pods := seen.Pods(owner)
		if len(pods) != 1 {
			return fmt.Errorf("there was to be one pod and there are %d", len(pods))
		}
		if running := pods[0].Running(); len(running) > 0 || !isTerminal(pods[0].Pod.Status.Phase) {
			return fmt.Errorf("still there: %s", describePods(pods))
		}
		finished = *pods[0]
		return nil
	})
	if reversal := finished.Reversal(); reversal != "" {
		t.Errorf("Pod %s left a terminal phase: %s", finished.Pod.Name, reversal)
	}
	return &finished
}

// RequireRequests fails the test unless the pod has had as many ContainerRecreateRequests as wanted.
func (t *Test) RequireRequests(record *PodRecord, wanted int) []Request {
	t.Helper()
	var requests []Request
	t.Recorder.Look(func(seen Seen) {
		for _, request := range seen.Requests(record.Pod.Name) {
			requests = append(requests, *request)
		}
	})
	if len(requests) != wanted {
		t.Errorf("Pod %s was to have %d ContainerRecreateRequests and had %d: %+v", record.Pod.Name, wanted, len(requests), requests)
	}
	return requests
}

// RequireImage fails the test unless the container has the image.
func (t *Test) RequireImage(record *PodRecord, container, wanted string) {
	t.Helper()
	if image := record.Image(container); image != wanted {
		t.Errorf("Container %s of pod %s was to have image %s and has %s", container, record.Pod.Name, wanted, image)
	}
}

// describePods shows the state of pods in one line each.
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

// Describe shows the state of the pods of a controller.
func (s Seen) Describe(owner string) string { return describePods(s.Pods(owner)) }
