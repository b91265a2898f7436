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
	d := newOutcome(old, written)
	switch {
	case !isJobType(old), len(old.Spec.Containers) > MaxContainers:
		return "", written.Status.Phase
	case HasTerminalPhase(old):
		phase = old.Status.Phase
	default:
		phase = written.Status.Phase
	}
	switch {
	case !d.succeeded():
		return v1alpha1.MainsRunning, phase
	case !d.decided():
		return v1alpha1.MainsSucceeded, phase
	}
	if !HasTerminalPhase(old) {
		phase = corev1.PodSucceeded
	}
	return v1alpha1.MainsDecided, phase
}

// outcome is a write of a pod's status, and what its mark says.
type outcome struct {
	old, written *corev1.Pod
	end          string
	// ignored are the containers whose exit codes do not count, and counting the others.
	ignored, counting []string
}

func newOutcome(old, written *corev1.Pod) outcome {
	o := outcome{old: old, written: written, end: ownValue(written, v1alpha1.AnnotationEnd), ignored: IgnoredExitCodes(written)}
	for _, c := range old.Spec.Containers {
		if !slices.Contains(o.ignored, c.Name) {
			o.counting = append(o.counting, c.Name)
		}
	}
	return o
}

// succeeded reports whether every counting container has exited 0 before the pod's deadline and any disruption. A record stays true.
func (o outcome) succeeded() bool {
	return MainsRecorded(o.old) || MainsRecorded(o.written) || o.undisturbed() && !o.restartsByRule() && o.countingExitedZero()
}

// decided reports whether a pod that has succeeded gets phase Succeeded.
func (o outcome) decided() bool {
	ends := (o.end == v1alpha1.EndPodPhase || o.end == v1alpha1.EndCRR) && o.mayTearDown() && o.undisturbed()
	return o.old.Status.Phase != corev1.PodFailed &&
		(o.old.Status.Phase == corev1.PodSucceeded || o.written.Status.Phase == corev1.PodFailed || ends || o.idle())
}

func (o outcome) mayTearDown() bool { return graceSeconds(o.old) <= int64(maxGraceOfPhase/time.Second) }

func (o outcome) undisturbed() bool {
	return undisturbed(o.old) && undisturbed(&corev1.Pod{Status: o.written.Status}) &&
		!allContainersRestarting(o.old) && !allContainersRestarting(o.written)
}

// restartsByRule reports whether only the operator knows that containers are done.
func (o outcome) restartsByRule() bool {
	hasRules := func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	return slices.ContainsFunc(o.old.Spec.InitContainers, hasRules) || slices.ContainsFunc(o.old.Spec.Containers, func(c corev1.Container) bool {
		always := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		return hasRules(c) || always && !slices.Contains(o.ignored, c.Name)
	})
}

// countingExitedZero reports whether each counting container has one status, an exit with 0 before the pod's deadline.
func (o outcome) countingExitedZero() bool {
	exited := make([]string, 0, len(o.counting))
	for _, status := range o.written.Status.ContainerStatuses {
		if slices.Contains(o.ignored, status.Name) {
			continue
		}
		if end := status.State.Terminated; end == nil || end.ExitCode != 0 || !o.inTime(end) {
			return false
		}
		exited = append(exited, status.Name)
	}
	slices.Sort(exited)
	return len(o.counting) > 0 && slices.Equal(slices.Sorted(slices.Values(o.counting)), exited)
}

// inTime reports whether the container ended before the pod's activeDeadlineSeconds.
func (o outcome) inTime(end *corev1.ContainerStateTerminated) bool {
	seconds, start := o.old.Spec.ActiveDeadlineSeconds, o.written.Status.StartTime
	if seconds == nil || start == nil {
		return true
	}
	return !end.FinishedAt.IsZero() && end.FinishedAt.Time.Before(start.Add(time.Duration(*seconds)*time.Second))
}

// idle reports whether every container has a status, no counting or native one runs, and each sidecar has ended as far as the mark permits.
func (o outcome) idle() bool {
	statuses := o.written.Status.ContainerStatuses
	for _, c := range o.old.Spec.Containers {
		if statusOf(o.written, c.Name) == nil {
			return false
		}
	}
	runs := func(status corev1.ContainerStatus) bool { return status.State.Running != nil }
	lastExit := o.lastExit()
	return !slices.ContainsFunc(o.written.Status.InitContainerStatuses, runs) &&
		!slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
			if slices.Contains(o.counting, status.Name) {
				return runs(status)
			}
			return !o.sidecarEnded(status, lastExit)
		})
}

// lastExit returns when the last counting container exited, or zero if one has not, or has no time.
func (o outcome) lastExit() time.Time {
	var last time.Time
	exits := 0
	for _, status := range o.written.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && !end.FinishedAt.IsZero() && slices.Contains(o.counting, status.Name) {
			last = later(last, end.FinishedAt.Time)
			exits++
		}
	}
	if exits != len(o.counting) {
		return time.Time{}
	}
	return last
}

func (o outcome) sidecarEnded(status corev1.ContainerStatus, lastExit time.Time) bool {
	isLast := func(run *corev1.ContainerStateTerminated) bool {
		return run != nil && !run.FinishedAt.IsZero() && !lastExit.IsZero() && !run.FinishedAt.Time.Before(lastExit)
	}
	ends := func(ends ...string) bool { return slices.Contains(ends, o.end) }
	state := status.State
	switch {
	case state.Terminated != nil && o.exitIsFinal() && (o.old.Spec.RestartPolicy == corev1.RestartPolicyNever || state.Terminated.ExitCode == 0):
		return true
	case ends(v1alpha1.EndExited, v1alpha1.EndRestarted, v1alpha1.EndWaiting) && isLast(state.Terminated):
		return true
	case ends(v1alpha1.EndRestarted, v1alpha1.EndWaiting) && o.mayTearDown() && isLast(status.LastTerminationState.Terminated):
		return true
	}
	return ends(v1alpha1.EndWaiting) && o.mayTearDown() && state.Running == nil
}

// exitIsFinal reports whether the pod's restartPolicy alone says which containers run again.
func (o outcome) exitIsFinal() bool {
	return !slices.ContainsFunc(o.old.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil || c.RestartPolicyRules != nil })
}
