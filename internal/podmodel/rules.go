// SPDX-License-Identifier: Apache-2.0

package podmodel

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	sidecarTerminated corev1.PodConditionType = v1alpha1.PodConditionSidecarTerminated
	// lost is the kubelet's reason for the end of a container that it does not find any more.
	lost = "ContainerStatusUnknown"
	// completed and failed are the kubelet's reasons of the condition Ready of a pod that has ended.
	completed = "PodCompleted"
	failed    = "PodFailed"
)

// rule explains changes of one topic.
type rule struct {
	name string
	of   topic
	// by are the writers; everybody if it is empty.
	by []Writer
	// explains is nil if the rule explains every change of its topic and writers.
	explains func(c change) bool
}

var (
	kubelets = []Writer{Kubelet, VirtualKubelet}
	users    = []Writer{Others}
)

// rules are in order: the first that explains a change names it. The kubelet's are those of pkg/kubelet: kubelet_pods.go
// (getPhase, convertToAPIContainerStatuses), status/status_manager.go (checkContainerStateTransition, mergePodStatus,
// TerminatePod) and status/generate.go.
var rules = []rule{
	{name: "the pod is being deleted, or sooner", of: ofDeletion, explains: deletesSooner},
	{name: "a deletion ends after its grace period", of: ofDeletion, explains: endsDeletion},
	{name: "the scheduler binds the pod", of: ofNode, explains: func(c change) bool { return c.before.Spec.NodeName == "" }},

	{name: "the operator records what it does", of: ofAnnotations, by: []Writer{Operator}},
	{name: "a virtual kubelet restores older annotations", of: ofAnnotations, by: []Writer{VirtualKubelet}},
	{name: "users edit the operator's annotations", of: ofAnnotations, by: users},
	{name: "the operator swaps an image", of: ofImage, by: []Writer{Operator}, explains: func(c change) bool { return !c.init && recordsSwap(c.after, c.container.Name) }},
	{name: "users change an image", of: ofImage, by: []Writer{Others, Kruise}},

	{name: "containers have started: Running", of: ofPhase, by: kubelets, explains: runs},
	{name: "a container has not started yet: Pending", of: ofPhase, by: kubelets, explains: pends},
	{name: "all containers succeeded: Succeeded", of: ofPhase, by: kubelets, explains: succeeds},
	{name: "a container failed: Failed", of: ofPhase, by: kubelets, explains: fails},
	{name: "an init container failed: Failed", of: ofPhase, by: kubelets, explains: failsToInitialize},
	{name: "a node rejects or evicts the pod: Failed", of: ofPhase, by: kubelets, explains: func(c change) bool {
		return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodFailed && c.after.Status.Reason != ""
	}},
	{name: "a deleted pod ends: Failed", of: ofPhase, by: kubelets, explains: func(c change) bool {
		return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodFailed && c.after.DeletionTimestamp != nil && !anyRuns(c.after)
	}},
	{name: "a kubelet keeps the written phase", of: ofPhase, by: kubelets, explains: func(c change) bool {
		return !isTerminal(c.before) && c.after.Status.Phase == writtenPhase(c.after)
	}},
	{name: "a kubelet that has not seen the written phase overwrites it", of: ofPhase, by: kubelets, explains: func(c change) bool {
		return isTerminal(c.before) && !hasFinished(c.before)
	}},
	{name: "the operator writes the phase", of: ofPhase, by: []Writer{Operator}, explains: func(c change) bool {
		return !isTerminal(c.before) && isTerminal(c.after) && c.after.Status.Phase == writtenPhase(c.after)
	}},
	{name: "the control plane fails a pod", of: ofPhase, by: []Writer{Controllers}, explains: func(c change) bool {
		return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodFailed
	}},
	{name: "users write the phase", of: ofPhase, by: users},

	{name: "ready as the containers and the phase", of: ofCondition, by: kubelets, explains: agreesWithReady},
	{name: "not ready because its node is not", of: ofCondition, by: []Writer{Controllers}, explains: func(c change) bool {
		return c.is != nil && c.is.Type == corev1.PodReady && c.is.Status == corev1.ConditionFalse
	}},
	{name: "all containers restart", of: ofCondition, by: kubelets, explains: func(c change) bool {
		return typeOf(c) == corev1.AllContainersRestarting && restartsAll(c.after)
	}},
	{name: "the operator marks the pod", of: ofCondition, by: []Writer{Operator}, explains: func(c change) bool {
		return c.is != nil && c.is.Type == sidecarTerminated && c.is.Status == corev1.ConditionTrue
	}},
	{name: "a virtual kubelet drops conditions of others", of: ofCondition, by: []Writer{VirtualKubelet}, explains: func(c change) bool { return c.is == nil }},
	{name: "the pod is disrupted", of: ofCondition, explains: func(c change) bool { return c.is != nil && c.is.Type == corev1.DisruptionTarget }},
	{name: "users write a condition", of: ofCondition, by: users},

	{name: "a container gets its first status", of: ofStatus, by: kubelets, explains: func(c change) bool { return c.new != nil && mayStart(c) }},
	{name: "users write a container's status", of: ofStatus, by: users},
	{name: "a container waits for another reason", of: ofState, by: kubelets, explains: func(c change) bool { return isWaiting(c.old) && isWaiting(c.new) }},
	{name: "a container starts", of: ofState, by: kubelets, explains: func(c change) bool {
		return isWaiting(c.old) && c.new.State.Running != nil && mayStart(c)
	}},
	{name: "a container ends", of: ofState, by: kubelets, explains: func(c change) bool {
		return c.old.State.Running != nil && c.new.State.Terminated != nil && c.old.RestartCount == c.new.RestartCount && c.old.ContainerID == c.new.ContainerID
	}},
	{name: "a deleted pod reports an older run", of: ofState, by: kubelets, explains: func(c change) bool {
		last := c.old.LastTerminationState.Terminated
		now := c.new.State.Terminated
		return c.before.DeletionTimestamp != nil && last != nil && now != nil && last.FinishedAt.Equal(&now.FinishedAt)
	}},
	{name: "a container is lost", of: ofState, by: kubelets, explains: isLost},
	{name: "a container starts and ends between two writes", of: ofState, by: kubelets, explains: func(c change) bool {
		return isWaiting(c.old) && c.new.State.Terminated != nil && mayStart(c)
	}},
	{name: "a container restarts by its policy", of: ofState, by: kubelets, explains: func(c change) bool {
		ended := c.old.State.Terminated
		return ended != nil && restarts(c, ended.ExitCode) && hasRestarted(c) && mayStart(c)
	}},
	{name: "a container restarts between two writes", of: ofState, by: kubelets, explains: func(c change) bool {
		ended := c.new.LastTerminationState.Terminated
		return c.old.State.Running != nil && ended != nil && restarts(c, ended.ExitCode) && hasRestarted(c) && mayStart(c)
	}},
	{name: "a container restarts with another image", of: ofState, by: kubelets, explains: restartsWithImage},
	{name: "a container restarts with all others", of: ofState, by: kubelets, explains: func(c change) bool { return restartsAll(c.after) && mayStart(c) }},
	{name: "users write a container's state", of: ofState, by: users},
	{name: "a restart is counted", of: ofRestartCount, by: kubelets, explains: func(c change) bool { return c.new.RestartCount > c.old.RestartCount }},
	{name: "users write a restart count", of: ofRestartCount, by: users},
	{name: "a container is ready as its state allows", of: ofReady, by: kubelets, explains: mayBeReady},
	{name: "users write a container's readiness", of: ofReady, by: users},
}

// Restarts reports whether the kubelet restarts a regular container after this exit code. Rules count only with a restartPolicy
// of the container, and those with unknown actions count too.
func Restarts(policy corev1.RestartPolicy, container *corev1.Container, code int32) bool {
	if container.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*container.RestartPolicy)
		for _, r := range container.RestartPolicyRules {
			if r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
}

// restarts reports whether the kubelet restarts the container after this exit code. Init containers under restartPolicy Always
// are restarted when they fail.
func restarts(c change, code int32) bool {
	policy := c.after.Spec.RestartPolicy
	if c.init && policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	return Restarts(policy, c.container, code)
}

// hasRestarted reports whether a container that ended has started again or waits for that.
func hasRestarted(c change) bool {
	return isWaiting(c.new) || c.new.RestartCount > c.old.RestartCount
}

// mayStart reports whether the container may have started since the last write: not in a pod that has finished.
func mayStart(c change) bool {
	return c.new.State.Running == nil || !hasFinished(c.before) || !isTerminal(c.after)
}

// restartsWithImage: the kubelet restarts a container with another image whatever its policy is. It does not report the end of
// the container before that, and rejects a start under restartPolicy Never if it did. A virtual kubelet may report it.
func restartsWithImage(c change) bool {
	replaced := c.old.Image != c.new.Image || c.old.Image != c.container.Image || recordsSwap(c.after, c.container.Name)
	seen := c.old.State.Terminated != nil && c.writer == Kubelet && !restarts(c, c.old.State.Terminated.ExitCode)
	return !c.init && replaced && !seen && hasRestarted(c) && mayStart(c)
}

func isLost(c change) bool {
	ended := c.new.State.Terminated
	return ended != nil && ended.Reason == lost && c.old.State.Terminated == nil
}

// mayBeReady: a running container may be ready. An init container is ready once it has succeeded. A container that is lost keeps
// its readiness.
func mayBeReady(c change) bool {
	ended := c.new.State.Terminated
	switch {
	case !c.new.Ready || c.new.State.Running != nil:
		return true
	case ended != nil && c.init && !isRestartable(c.container):
		return ended.ExitCode == 0
	default:
		return ended != nil && ended.Reason == lost && c.old != nil && c.old.Ready
	}
}

func deletesSooner(c change) bool {
	b, a := c.before.DeletionTimestamp, c.after.DeletionTimestamp
	return a != nil && (b == nil || a.Time.Before(b.Time))
}

// endsDeletion: a shorter grace period ends now if it were over, or in a second (BeforeDelete in
// k8s.io/apiserver/pkg/registry/rest/delete.go). A kubelet deletes with 0 when no container runs any more.
func endsDeletion(c change) bool {
	period := c.after.DeletionGracePeriodSeconds
	return c.before.DeletionTimestamp != nil && c.after.DeletionTimestamp != nil && period != nil && *period <= 1
}

// runs: every container has started, even if it waits now.
func runs(c change) bool {
	return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodRunning && !waitsForStart(c.after)
}

func pends(c change) bool {
	return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodPending && (waitsForStart(c.after) || initializes(c.after))
}

func succeeds(c change) bool {
	return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodSucceeded && all(c.after, func(_ *corev1.Container, s *corev1.ContainerStatus) bool {
		return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}

// fails: every container has ended, and not all with 0. None will be restarted, unless the pod is being deleted.
func fails(c change) bool {
	some := false
	ended := all(c.after, func(container *corev1.Container, s *corev1.ContainerStatus) bool {
		end := endOf(s)
		if end == nil {
			return false
		}
		some = some || end.ExitCode != 0 || s.State.Terminated == nil
		return c.after.DeletionTimestamp != nil || !Restarts(c.after.Spec.RestartPolicy, container, end.ExitCode)
	})
	return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodFailed && ended && some
}

func failsToInitialize(c change) bool {
	return !isTerminal(c.before) && c.after.Status.Phase == corev1.PodFailed && initFailed(c.after)
}

// initFailed reports whether an init container failed that is not restarted.
func initFailed(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		end := endOf(statusOf(pod, container.Name, true))
		c := change{write: &write{after: pod}, container: container, init: true}
		if end != nil && end.ExitCode != 0 && !restarts(c, end.ExitCode) {
			return true
		}
	}
	return false
}

// agreesWithReady: the kubelet derives the condition from the containers and the phase that it computed. It may report that phase
// later than the condition, because it first waits until no container runs.
func agreesWithReady(c change) bool {
	if c.is == nil || c.is.Type != corev1.PodReady {
		return false
	}
	switch {
	case c.is.Status == corev1.ConditionTrue:
		return !isTerminal(c.after) && all(c.after, func(_ *corev1.Container, s *corev1.ContainerStatus) bool { return s != nil && s.Ready })
	case c.is.Reason == completed:
		return reads(c.after, corev1.PodSucceeded) || all(c.after, endedWith0)
	case c.is.Reason == failed:
		return reads(c.after, corev1.PodFailed) || c.after.DeletionTimestamp != nil || c.after.Status.Reason != "" ||
			initFailed(c.after) || !all(c.after, func(c *corev1.Container, s *corev1.ContainerStatus) bool { return endOf(s) == nil || endedWith0(c, s) })
	default:
		return true
	}
}

// reads reports whether the pod has this phase, or the operator has written it.
func reads(pod *corev1.Pod, phase corev1.PodPhase) bool {
	return pod.Status.Phase == phase || writtenPhase(pod) == phase
}

// hasFinished reports whether the kubelet knows that the pod has a terminal phase. It learns of a phase that the operator wrote
// later than others, and then gives the condition Ready a reason.
func hasFinished(pod *corev1.Pod) bool {
	if !isTerminal(pod) || writtenPhase(pod) == "" {
		return isTerminal(pod)
	}
	ready := conditionOf(pod, corev1.PodReady)
	return ready != nil && (ready.Reason == completed || ready.Reason == failed)
}

// writtenPhase is the phase that the operator recorded, or "".
func writtenPhase(pod *corev1.Pod) corev1.PodPhase {
	var record struct {
		Phase corev1.PodPhase `json:"phase"`
	}
	if value := pod.Annotations[v1alpha1.AnnotationPodPhase]; value == "" || json.Unmarshal([]byte(value), &record) != nil {
		return ""
	}
	return record.Phase
}

// recordsSwap reports whether the operator recorded a swap of the container's image.
func recordsSwap(pod *corev1.Pod, container string) bool {
	var record map[string]json.RawMessage
	value := pod.Annotations[v1alpha1.AnnotationImageSwap]
	return value != "" && json.Unmarshal([]byte(value), &record) == nil && record[container] != nil
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isWaiting(s *corev1.ContainerStatus) bool {
	return s.State.Running == nil && s.State.Terminated == nil
}

func isRestartable(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// endOf returns how a container that does not run ended last, or nil.
func endOf(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s == nil || s.State.Running != nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	default:
		return s.LastTerminationState.Terminated
	}
}

// endedWith0 reports whether a container that does not run ended last with 0.
func endedWith0(_ *corev1.Container, s *corev1.ContainerStatus) bool {
	end := endOf(s)
	return end != nil && end.ExitCode == 0
}

// all reports whether all regular containers satisfy the check.
func all(pod *corev1.Pod, check func(*corev1.Container, *corev1.ContainerStatus) bool) bool {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; !check(c, statusOf(pod, c.Name, false)) {
			return false
		}
	}
	return true
}

// waitsForStart reports whether a regular container has never started.
func waitsForStart(pod *corev1.Pod) bool {
	return !all(pod, func(_ *corev1.Container, s *corev1.ContainerStatus) bool {
		return s != nil && (!isWaiting(s) || s.LastTerminationState.Terminated != nil)
	})
}

// initializes reports whether an init container has not succeeded yet, or one with restartPolicy Always has not started.
func initializes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		s := statusOf(pod, c.Name, true)
		return s == nil || isWaiting(s) || s.State.Running != nil && !isRestartable(&c) || isRestartable(&c) && !s.Ready
	})
}

func anyRuns(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil
	})
}

// restartsAll reports whether an exit of some container may restart all containers.
func restartsAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// typeOf is the type of the condition that changed.
func typeOf(c change) corev1.PodConditionType {
	if c.is == nil {
		return c.was.Type
	}
	return c.is.Type
}
