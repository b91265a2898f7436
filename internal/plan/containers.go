// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// defaultGracePeriod is Kubernetes' default of terminationGracePeriodSeconds.
	defaultGracePeriod = 30 * time.Second
	// maxGracePeriod bounds a pod's grace period: Kubernetes does not, and a sum of larger ones would overflow.
	maxGracePeriod = 365 * 24 * time.Hour
	// ExitCodeSIGTERM is the exit code of a process that SIGTERM ended: 128 and the signal's number.
	ExitCodeSIGTERM int32 = 143
	// ExitCodeSIGKILL is the exit code of a process that SIGKILL ended.
	ExitCodeSIGKILL int32 = 137
)

// featureRestartAll is the name under which kubelets declare that they act on rules that restart all containers (KEP-5532).
const featureRestartAll = "RestartAllContainersOnContainerExits"

// containerRestartPolicies is the first version of Kubernetes whose kubelets act on restartPolicy and restartPolicyRules of
// containers by default (feature gate ContainerRestartRules, KEP-5307).
var containerRestartPolicies = version.MajorMinor(1, 35)

// ignoresContainerRestartPolicy reports whether the kubelet uses the pod's restartPolicy alone, as those before Kubernetes 1.35 do.
// Every supported API server is newer, and accepts the containers' fields in pods for such kubelets too. Their alpha feature gate cannot
// be seen and counts as off. An unknown version, and the provider of a virtual node, count as recent: waiting is the safe side.
func (s *Snapshot) ignoresContainerRestartPolicy() bool {
	if s.Node == NodeVirtual {
		return false
	}
	kubelet, err := version.ParseGeneric(s.Kubelet.Version)
	return err == nil && kubelet.LessThan(containerRestartPolicies)
}

// ignoresRestartAll reports whether the kubelet ignores rules that restart all containers. One that declares no features may act on them.
func (s *Snapshot) ignoresRestartAll() bool {
	declares := s.Node != NodeVirtual && len(s.Kubelet.Features) > 0
	return s.ignoresContainerRestartPolicy() || declares && !slices.Contains(s.Kubelet.Features, featureRestartAll)
}

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

// terminatedForGood returns the container's termination if the kubelet will not restart it, or nil. In a pod with a
// terminal phase the kubelet restarts nothing, even where a lost container reads as failed.
func (s *Snapshot) terminatedForGood(name string) *corev1.ContainerStateTerminated {
	container, status := containerOf(s.Pod, name), statusOf(s.Pod, name)
	if container == nil || status == nil || status.State.Terminated == nil {
		return nil
	}
	if !HasTerminalPhase(s.Pod) && s.shouldRestart(container, status.State.Terminated.ExitCode) {
		return nil
	}
	return status.State.Terminated
}

// failed reports whether the container has ended for good with an exit code other than 0.
func (s *Snapshot) failed(name string) bool {
	end := s.terminatedForGood(name)
	return end != nil && end.ExitCode != 0
}

// MainDone reports whether the main container has ended and will not run again.
func (s Snapshot) MainDone(name string) bool {
	return !allContainersRestarting(s.Pod) && s.terminatedForGood(name) != nil
}

// AlwaysRestarts reports whether the kubelet restarts the container whenever it exits, because of the container's own restartPolicy.
func (s Snapshot) AlwaysRestarts(name string) bool {
	container := containerOf(s.Pod, name)
	return container != nil && container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways && s.shouldRestart(container, 0)
}

// shouldRestart follows the kubelet's ContainerShouldRestart (pkg/api/v1/pod/util.go, KEP-5307 and KEP-5532): the first
// matching rule, then the container's own restartPolicy, then the pod's. Rules count only with a restartPolicy. For older kubelets,
// only the pod's counts. An unknown action counts as a restart, although clusters ignore it: waiting is the safe side.
func (s *Snapshot) shouldRestart(container *corev1.Container, exitCode int32) bool {
	policy := s.Pod.Spec.RestartPolicy
	if container.RestartPolicy != nil && !s.ignoresContainerRestartPolicy() {
		rules := container.RestartPolicyRules
		i := slices.IndexFunc(rules, func(r corev1.ContainerRestartRule) bool { return ruleMatches(r, exitCode) })
		if i >= 0 && (rules[i].Action != corev1.ContainerRestartRuleActionRestartAllContainers || !s.ignoresRestartAll()) {
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

// ruleMatches reports whether the rule applies to this exit.
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
func (s *Snapshot) restartsAllContainers(name string) bool {
	return !s.ignoresRestartAll() && slices.ContainsFunc(containerOf(s.Pod, name).RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
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
	switch {
	case status == nil:
		return true
	case hasStarted(status), status.State.Running != nil, status.State.Terminated != nil:
		return false
	case status.State.Waiting == nil:
		return true
	}
	return slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, status.State.Waiting.Reason)
}

// HasTerminalPhase reports whether the pod's phase is one that Kubernetes does not leave.
func HasTerminalPhase(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsTearingDown reports whether the pod has a terminal phase and a regular container still runs, which the kubelet must
// end.
func IsTearingDown(pod *corev1.Pod) bool {
	running := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return HasTerminalPhase(pod) && slices.ContainsFunc(pod.Status.ContainerStatuses, running)
}

// GracePeriod is the pod's grace period, bounded, and at least the one second that the kubelet grants.
func GracePeriod(pod *corev1.Pod) time.Duration {
	return time.Duration(min(graceSeconds(pod), int64(maxGracePeriod/time.Second))) * time.Second
}

// graceSeconds is GracePeriod without the bound.
func graceSeconds(pod *corev1.Pod) int64 {
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		return int64(defaultGracePeriod / time.Second)
	}
	return max(*pod.Spec.TerminationGracePeriodSeconds, 1)
}
