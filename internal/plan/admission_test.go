// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// decide is admission policy sidecar-termination-outcome (config/admission/outcome.yaml, whose variables it names): it returns the pod
// that the API server stores when a client writes a pod's status.
func decide(old, written *corev1.Pod) *corev1.Pod {
	pod := written.DeepCopy()
	marked := func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelOutcome] == v1alpha1.OutcomeMainContainers }
	jobType := old.Spec.RestartPolicy == never || old.Spec.RestartPolicy == onFailure
	if !marked(old) && !marked(written) || !jobType || len(old.Spec.Containers) > 128 {
		return pod
	}
	own := func(value string) string { return value + "/" + string(old.UID) }
	unprotected := func(key string) bool {
		value, found := old.Annotations[key]
		other, kept := written.Annotations[key]
		return !marked(old) && found && kept && value == other
	}
	believed := func(key string) string {
		value, found := written.Annotations[key]
		switch {
		case unprotected(key):
			return ""
		case !found && marked(old):
			return old.Annotations[key]
		}
		return value
	}
	records := []string{believed(v1alpha1.AnnotationMainContainers)}
	if marked(old) {
		records = append(records, old.Annotations[v1alpha1.AnnotationMainContainers])
	}
	undisturbed := old.DeletionTimestamp == nil && written.Status.Reason == "" && old.Status.Reason == "" &&
		!isDisrupted(written) && !isDisrupted(old)
	var ignored []string
	if list, found := strings.CutSuffix(believed(v1alpha1.AnnotationIgnoredExitCodes), own("")); found {
		ignored = strings.Split(list, ",")
	}
	end, _ := strings.CutSuffix(believed(v1alpha1.AnnotationEnd), own(""))
	if believed(v1alpha1.AnnotationEnd) != own(end) {
		end = ""
	}
	ends := (end == v1alpha1.EndPodPhase || end == v1alpha1.EndCRR) && *old.Spec.TerminationGracePeriodSeconds <= 3600

	succeeded := slices.Contains(records, own(v1alpha1.MainsDecided)) || slices.Contains(records, own(v1alpha1.MainsSucceeded)) ||
		undisturbed && !restartsByRule(old, ignored) && countingExitedZero(old, written, ignored)
	decided := old.Status.Phase != corev1.PodFailed && succeeded &&
		(old.Status.Phase == corev1.PodSucceeded || isIdle(old, written, ignored, end) || written.Status.Phase == corev1.PodFailed || ends && undisturbed)

	found := v1alpha1.MainsRunning
	switch {
	case decided:
		found, pod.Status.Phase = v1alpha1.MainsDecided, corev1.PodSucceeded
	case succeeded:
		found = v1alpha1.MainsSucceeded
	}
	if isTerminal(old) {
		pod.Status.Phase = old.Status.Phase
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
	for _, key := range []string{v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd} {
		if _, found := old.Annotations[key]; found && marked(old) {
			annotate(pod, key, believed(key))
		}
		if unprotected(key) {
			delete(pod.Annotations, key)
		}
	}
	annotate(pod, v1alpha1.AnnotationMainContainers, own(found))
	return pod
}

// isDisrupted reports whether a condition of the pod keeps its main containers from a record.
func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return (c.Type == corev1.DisruptionTarget || c.Type == corev1.AllContainersRestarting) && c.Status == corev1.ConditionTrue
	})
}

// restartsByRule reports whether only the operator knows that containers are done.
func restartsByRule(pod *corev1.Pod, ignored []string) bool {
	hasRules := func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	return slices.ContainsFunc(pod.Spec.InitContainers, hasRules) || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		always := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		return hasRules(c) || always && !slices.Contains(ignored, c.Name)
	})
}

// countingExitedZero reports whether each container that counts has one status, an exit with 0 before the pod's deadline.
func countingExitedZero(old, written *corev1.Pod, ignored []string) bool {
	var counting []string
	for _, c := range old.Spec.Containers {
		if !slices.Contains(ignored, c.Name) {
			counting = append(counting, c.Name)
		}
	}
	var exited []string
	for _, st := range written.Status.ContainerStatuses {
		if slices.Contains(ignored, st.Name) {
			continue
		}
		end, seconds, start := st.State.Terminated, old.Spec.ActiveDeadlineSeconds, written.Status.StartTime
		if end == nil || end.ExitCode != 0 ||
			seconds != nil && start != nil && (end.FinishedAt.IsZero() || !end.FinishedAt.Time.Before(start.Add(time.Duration(*seconds)*time.Second))) {
			return false
		}
		exited = append(exited, st.Name)
	}
	slices.Sort(counting)
	slices.Sort(exited)
	return len(counting) > 0 && slices.Equal(counting, exited)
}

// isIdle reports whether every container has a status, no container that counts runs, and each sidecar has ended as far as the end permits.
func isIdle(old, written *corev1.Pod, ignored []string, end string) bool {
	var counting []string
	for _, c := range old.Spec.Containers {
		if !slices.ContainsFunc(written.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.Name == c.Name }) {
			return false
		}
		if !slices.Contains(ignored, c.Name) {
			counting = append(counting, c.Name)
		}
	}
	var exits []time.Time
	for _, st := range written.Status.ContainerStatuses {
		if end := st.State.Terminated; slices.Contains(counting, st.Name) && end != nil && !end.FinishedAt.IsZero() {
			exits = append(exits, end.FinishedAt.Time)
		}
	}
	exitIsFinal := !slices.ContainsFunc(old.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil || c.RestartPolicyRules != nil })
	hasEnded := func(st corev1.ContainerStatus) bool {
		isLast := func(run *corev1.ContainerStateTerminated) bool {
			return run != nil && !run.FinishedAt.IsZero() && len(exits) > 0 && len(exits) == len(counting) &&
				!run.FinishedAt.Time.Before(slices.MaxFunc(exits, time.Time.Compare))
		}
		mayTearDown := *old.Spec.TerminationGracePeriodSeconds <= 3600
		final := exitIsFinal && st.State.Terminated != nil && (old.Spec.RestartPolicy == never || st.State.Terminated.ExitCode == 0)
		switch {
		case final, end == v1alpha1.EndWaiting && mayTearDown && st.State.Running == nil:
			return true
		case (end == v1alpha1.EndRestarted || end == v1alpha1.EndWaiting) && mayTearDown && isLast(st.LastTerminationState.Terminated):
			return true
		}
		return permitsExits(end) && isLast(st.State.Terminated)
	}
	runs := func(st corev1.ContainerStatus) bool { return st.State.Running != nil }
	return !slices.ContainsFunc(written.Status.InitContainerStatuses, runs) &&
		!slices.ContainsFunc(written.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
			if slices.Contains(counting, st.Name) {
				return runs(st)
			}
			return !hasEnded(st)
		})
}
