// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// DecideOutcome returns what admission policy sidecar-termination-outcome (config/admission/outcome.yaml) makes of a write of a pod's status: a
// value of v1alpha1.AnnotationMainContainers without the UID, and the phase. The written pod must have the label and the annotations that the
// policy leaves it. The record is empty if the policy passes over the pod. A test compares both on random writes.
func DecideOutcome(old, written *corev1.Pod) (record string, phase corev1.PodPhase) {
	phase = written.Status.Phase
	switch {
	case !IsJobType(old), len(old.Spec.Containers) > MaxContainers:
		return "", phase
	case HasTerminalPhase(old):
		phase = old.Status.Phase
	}
	switch w := newStatusWrite(old, written); {
	case !w.succeeded():
		return v1alpha1.MainsRunning, phase
	case !w.decided():
		return v1alpha1.MainsSucceeded, phase
	case HasTerminalPhase(old):
		return v1alpha1.MainsDecided, phase
	}
	return v1alpha1.MainsDecided, corev1.PodSucceeded
}

// statusWrite is a write of a pod's status, and what its mark says.
type statusWrite struct {
	old, written *corev1.Pod
	end          string
	// ignored are the containers whose exit codes do not count, and counting the others.
	ignored, counting []string
}

func newStatusWrite(old, written *corev1.Pod) statusWrite {
	w := statusWrite{old: old, written: written, end: ownValue(written, v1alpha1.AnnotationEnd), ignored: IgnoredExitCodes(written)}
	for _, c := range old.Spec.Containers {
		if !slices.Contains(w.ignored, c.Name) {
			w.counting = append(w.counting, c.Name)
		}
	}
	return w
}

// succeeded reports whether every counting container has exited 0 before the pod's deadline and any disruption. A record stays true.
func (w statusWrite) succeeded() bool {
	return MainsRecorded(w.old) || MainsRecorded(w.written) || w.undisturbed() && !restartsByRule(w.old, w.ignored) && w.countingExitedZero()
}

// decided reports whether a pod that has succeeded gets phase Succeeded.
func (w statusWrite) decided() bool {
	ends := (w.end == v1alpha1.EndPodPhase || w.end == v1alpha1.EndCRR) && w.mayTearDown() && w.undisturbed()
	return w.old.Status.Phase != corev1.PodFailed &&
		(w.old.Status.Phase == corev1.PodSucceeded || w.written.Status.Phase == corev1.PodFailed || ends || w.idle())
}

func (w statusWrite) mayTearDown() bool {
	return graceSeconds(w.old) <= int64(maxGraceOfPhase/time.Second)
}

func (w statusWrite) undisturbed() bool {
	return undisturbed(w.old) && undisturbed(&corev1.Pod{Status: w.written.Status}) &&
		!allContainersRestarting(w.old) && !allContainersRestarting(w.written)
}

// restartsByRule reports whether only the operator knows that the containers whose exit codes count are done: the admission policy does not
// evaluate restart rules.
func restartsByRule(pod *corev1.Pod, ignored []string) bool {
	hasRules := func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	return slices.ContainsFunc(pod.Spec.InitContainers, hasRules) || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		always := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		return hasRules(c) || always && !slices.Contains(ignored, c.Name)
	})
}

// countingExitedZero reports whether each counting container has one status, an exit with 0 before the pod's deadline.
func (w statusWrite) countingExitedZero() bool {
	exited, deadline := make([]string, 0, len(w.counting)), Deadline(w.old.Spec.ActiveDeadlineSeconds, w.written.Status.StartTime)
	for _, status := range w.written.Status.ContainerStatuses {
		if slices.Contains(w.ignored, status.Name) {
			continue
		}
		if end := status.State.Terminated; end == nil || end.ExitCode != 0 || !inTime(end, deadline) {
			return false
		}
		exited = append(exited, status.Name)
	}
	slices.Sort(exited)
	return len(w.counting) > 0 && slices.Equal(slices.Sorted(slices.Values(w.counting)), exited)
}

// idle reports whether every container has a status, no counting or native one runs, and each sidecar has ended as far as the mark permits.
func (w statusWrite) idle() bool {
	statuses := w.written.Status.ContainerStatuses
	for _, c := range w.old.Spec.Containers {
		if statusOf(w.written, c.Name) == nil {
			return false
		}
	}
	runs := func(status corev1.ContainerStatus) bool { return status.State.Running != nil }
	lastExit := w.lastExit()
	return !slices.ContainsFunc(w.written.Status.InitContainerStatuses, runs) &&
		!slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
			if slices.Contains(w.counting, status.Name) {
				return runs(status)
			}
			return !w.sidecarEnded(status, lastExit)
		})
}

// lastExit returns when the last counting container exited, or zero if one has not, or has no time.
func (w statusWrite) lastExit() time.Time {
	var last time.Time
	exits := 0
	for _, status := range w.written.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && !end.FinishedAt.IsZero() && slices.Contains(w.counting, status.Name) {
			last = later(last, end.FinishedAt.Time)
			exits++
		}
	}
	if exits != len(w.counting) {
		return time.Time{}
	}
	return last
}

func (w statusWrite) sidecarEnded(status corev1.ContainerStatus, lastExit time.Time) bool {
	isLast := func(run *corev1.ContainerStateTerminated) bool {
		return run != nil && !run.FinishedAt.IsZero() && !lastExit.IsZero() && !run.FinishedAt.Time.Before(lastExit)
	}
	ends := func(ends ...string) bool { return w.mayTearDown() && slices.Contains(ends, w.end) }
	state := status.State
	switch {
	case state.Terminated != nil && w.exitIsFinal() && (w.old.Spec.RestartPolicy == corev1.RestartPolicyNever || state.Terminated.ExitCode == 0):
		return true
	case ends(v1alpha1.EndExited, v1alpha1.EndRestarted, v1alpha1.EndWaiting) && isLast(state.Terminated):
		return true
	case ends(v1alpha1.EndRestarted, v1alpha1.EndWaiting) && isLast(status.LastTerminationState.Terminated):
		return true
	}
	return ends(v1alpha1.EndWaiting) && state.Running == nil
}

// exitIsFinal reports whether the pod's restartPolicy alone says which containers run again.
func (w statusWrite) exitIsFinal() bool {
	return !slices.ContainsFunc(w.old.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil || c.RestartPolicyRules != nil })
}
