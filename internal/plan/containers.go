// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// defaultGracePeriod is Kubernetes' default of terminationGracePeriodSeconds.
	defaultGracePeriod = 30 * time.Second
	// maxGracePeriod bounds what is made of it: Kubernetes does not, and a sum of larger ones would overflow.
	maxGracePeriod = 365 * 24 * time.Hour
	// exitOnSIGTERM is the exit code of a program that does not handle SIGTERM.
	exitOnSIGTERM = 128 + 15
	// PodCompleted is the reason of the condition Ready of a pod whose phase the kubelet takes for Succeeded. That condition
	// is read for this reason alone.
	PodCompleted = "PodCompleted"
)

// statusOf returns the status of a regular container, or nil.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[i]
}

// containerOf returns the spec of a regular container, or nil.
func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Containers[i]
}

// terminatedForGood returns the container's end if the kubelet will not start it again, or nil. It starts nothing in a
// pod with a terminal phase, where a container that was lost may read as one that failed.
func terminatedForGood(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	container, status := containerOf(pod, name), statusOf(pod, name)
	if container == nil || status == nil || status.State.Terminated == nil {
		return nil
	}
	if !HasTerminalPhase(pod) && shouldRestart(container, pod.Spec.RestartPolicy, status.State.Terminated.ExitCode) {
		return nil
	}
	return status.State.Terminated
}

// shouldRestart follows the kubelet's ContainerShouldRestart (pkg/api/v1/pod/util.go, KEP-5307 and KEP-5532): the first
// matching rule, then the container's own restartPolicy, then the pod's. Rules count only beside a restartPolicy.
func shouldRestart(container *corev1.Container, podPolicy corev1.RestartPolicy, exitCode int32) bool {
	policy := podPolicy
	if container.RestartPolicy != nil {
		if slices.ContainsFunc(container.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return ruleMatches(r, exitCode) }) {
			return true
		}
		policy = corev1.RestartPolicy(*container.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// ruleMatches reports whether the rule restarts the container, or every container, after this exit. Both actions mean
// that the container runs again. A cluster that does not know an action treats it as no match; taking it for a restart
// errs on the side of waiting.
func ruleMatches(rule corev1.ContainerRestartRule, exitCode int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(rule.ExitCodes.Values, exitCode)
	switch rule.ExitCodes.Operator {
	case corev1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

// restartsAllContainers reports whether an exit of the container may restart the whole pod, main containers included.
func restartsAllContainers(container *corev1.Container) bool {
	return slices.ContainsFunc(container.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// allContainersRestarting reports whether the kubelet is about to run every container again (KEP-5532).
func allContainersRestarting(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue
	})
}

// hasStarted reports whether the container has run at least once.
func hasStarted(status *corev1.ContainerStatus) bool {
	return status != nil && status.ContainerID != ""
}

// isStarting reports whether the kubelet is creating the container for the first time.
func isStarting(status *corev1.ContainerStatus) bool {
	if status == nil {
		return true
	}
	waiting := status.State.Waiting
	switch {
	case hasStarted(status), status.State.Running != nil, status.State.Terminated != nil:
		return false
	case waiting == nil:
		return true
	}
	return waiting.Reason == "" || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing"
}

// HasTerminalPhase reports whether the pod's phase is one that Kubernetes does not leave.
func HasTerminalPhase(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// kubeletKnowsPhase reports whether the kubelet has taken over a phase Succeeded that it did not find by itself: it writes
// the reason to the pod's condition Ready (pkg/kubelet/status/generate.go), as a rule while containers still run.
func kubeletKnowsPhase(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Reason == PodCompleted
	})
}

// AnyContainerRunning reports whether a regular container runs.
func AnyContainerRunning(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// IsTearingDown reports whether a regular container of a pod with a terminal phase runs: the kubelet has to end it.
func IsTearingDown(pod *corev1.Pod) bool { return HasTerminalPhase(pod) && AnyContainerRunning(pod) }

// GracePeriod is the time that the pod gives its containers to end, at least the one second that the kubelet grants.
func GracePeriod(pod *corev1.Pod) time.Duration {
	return time.Duration(min(graceSeconds(pod), int64(maxGracePeriod/time.Second))) * time.Second
}

// graceSeconds is that time without the bound.
func graceSeconds(pod *corev1.Pod) int64 {
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		return int64(defaultGracePeriod / time.Second)
	}
	return max(*pod.Spec.TerminationGracePeriodSeconds, 1)
}
