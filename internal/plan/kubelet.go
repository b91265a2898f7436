// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Kubelet is what the operator knows about the kubelet of a pod's node.
type Kubelet struct {
	// Version is empty if it is unknown.
	Version string
	// ReadySince is when the node's condition Ready last became true, by the node's clock. It is zero while the node is not ready.
	ReadySince time.Time
	// IgnoresPhase is true while kubelets of this version are known to ignore written phases. Modes that write the phase then go
	// last. They stay usable, so that a pod without another mode is no worse off if that is wrong.
	IgnoresPhase bool
}

// containerRestartPolicies is the first version of Kubernetes whose kubelets act on restartPolicy and restartPolicyRules of
// containers by default (feature gate ContainerRestartRules, KEP-5307).
var containerRestartPolicies = version.MajorMinor(1, 35)

// ignoresContainerRestartPolicy reports whether the kubelet uses the pod's restartPolicy alone, as those before Kubernetes 1.35 do.
// A newer API server accepts the containers' fields in pods for such kubelets too. Their alpha feature gate cannot be seen and
// counts as off. An unknown version, and the provider of a virtual node, count as recent: waiting is the safe side.
func (s *Snapshot) ignoresContainerRestartPolicy() bool {
	if s.Node == NodeVirtual {
		return false
	}
	kubelet, err := version.ParseGeneric(s.Kubelet.Version)
	return err == nil && kubelet.LessThan(containerRestartPolicies)
}

// phaseIgnoredByKubelet returns why modes that write the phase go last, or the zero value.
func (s *situation) phaseIgnoredByKubelet() unusable {
	if !s.Kubelet.IgnoresPhase {
		return unusable{}
	}
	return unusable{v1alpha1.ReasonPhaseIgnoredByKubelet, fmt.Sprintf(
		"the kubelet of node %s ignores written phases, as others of version %s did; declare mode Auto, Image or CRR",
		s.Pod.Spec.NodeName, s.Kubelet.Version)}
}

// PhaseEvidence is what a pod shows about its kubelet after its phase was written.
type PhaseEvidence string

// The values of PhaseEvidence. The zero value is none.
const (
	// PhaseHonored means that the kubelet has adopted the phase and ended the containers in time.
	PhaseHonored PhaseEvidence = "Honored"
	// PhaseUnreported means that the kubelet of a ready node has not reported the phase in time. A hook that hangs in the pod has
	// the same effect, so that one pod proves nothing.
	PhaseUnreported PhaseEvidence = "Unreported"
	// PhaseIgnored means that the kubelet has reverted the phase and then started a container of the pod. A kubelet that has
	// received a terminal phase never does the latter, whatever the pod's containers, hooks and volumes do.
	PhaseIgnored PhaseEvidence = "Ignored"
)

// PhaseTrial follows the phases that one process has written to one pod, until the pod has shown whether its kubelet acts on them.
// It uses what the process did itself, by its own clock, and what the kubelet reports. Of annotations, which anybody who may
// change the pod can forge, it uses only the number of the attempt, to recognize versions of the pod before the write.
type PhaseTrial struct {
	kubelet Kubelet
	number  int
	written time.Time
	timeout time.Duration
	// standing is true until the last written phase was seen reverted, and reversals counts the reverted ones.
	standing  bool
	reversals int
	// restarts are the restart counts when the kubelet had reverted the phase for good; nil before.
	restarts map[string]int32
	// completed is true once the kubelet has reported the phase while a container ran, and unreported once PhaseUnreported was
	// returned.
	completed, unreported bool
}

// NewPhaseTrial returns the trial after the action was carried out. last is the trial of the pod before that, or nil.
func NewPhaseTrial(last *PhaseTrial, action Action, kubelet Kubelet, now time.Time) *PhaseTrial {
	if action.Mode != v1alpha1.ModePodPhase || action.ReleasePhase {
		return last
	}
	trial := &PhaseTrial{kubelet: kubelet, number: action.Attempt, written: now, timeout: action.Timeout, standing: true}
	if last != nil && last.kubelet.Version == kubelet.Version {
		trial.reversals, trial.unreported = last.reversals, last.unreported
	}
	return trial
}

// Written is when the process last wrote the phase.
func (t *PhaseTrial) Written() time.Time { return t.written }

// See returns what the pod of the snapshot shows, and whether the trial is over.
func (t *PhaseTrial) See(s Snapshot, now time.Time) (evidence PhaseEvidence, over bool) {
	switch {
	case !recordsPhase(s.Attempts, t.number):
		return "", false // the cache lacks the write
	case s.Pod.DeletionTimestamp != nil, s.Kubelet.Version != t.kubelet.Version:
		return "", true
	case t.restarts != nil && startedSince(s.Pod, t.restarts):
		return PhaseIgnored, true
	case t.restarts != nil:
		return "", HasTerminalPhase(s.Pod)
	case !HasTerminalPhase(s.Pod):
		t.revert(s.Pod, now)
		return "", false
	case AnyContainerRunning(s.Pod):
		return t.seeRunning(s, now), false
	case s.Pod.Status.Phase == corev1.PodSucceeded && t.endedContainers(s, now):
		return PhaseHonored, true
	}
	return "", true
}

// seeRunning is See for a pod with a terminal phase and a container that runs. The kubelet reports only phase Succeeded in a way
// that shows that it has adopted it. Records have whole seconds, so that a CRR may end the wait for that up to a second early.
func (t *PhaseTrial) seeRunning(s Snapshot, now time.Time) PhaseEvidence {
	switch {
	case s.Pod.Status.Phase != corev1.PodSucceeded:
	case kubeletKnowsPhase(s.Pod):
		t.completed = true
	case !t.unreported && now.Sub(t.written) >= maxPhaseDelay-time.Second && !t.kubelet.ReadySince.IsZero() && s.Kubelet.ReadySince.Equal(t.kubelet.ReadySince):
		t.unreported = true
		return PhaseUnreported
	}
	return ""
}

// endedContainers reports whether the phase Succeeded ended the containers in time. Sidecars may also end by themselves. The
// kubelet then either had not reported the phase before, or would not have left it where a container has failed.
func (t *PhaseTrial) endedContainers(s Snapshot, now time.Time) bool {
	onlyPhase := !slices.ContainsFunc(s.Attempts, func(a Attempt) bool { return a.Mode != v1alpha1.ModePodPhase })
	return onlyPhase && (t.completed || anyContainerFailed(s.Pod)) && now.Sub(t.written) <= t.timeout+statusLag
}

// revert records that the pod lacks the phase. A kubelet that has not seen the phase yet may revert it as well, but not after
// maxPhaseDelay, and not each of maxPhaseWrites phases.
func (t *PhaseTrial) revert(pod *corev1.Pod, now time.Time) {
	if !t.standing {
		return
	}
	t.standing = false
	if t.reversals++; t.reversals < maxPhaseWrites && now.Sub(t.written) < maxPhaseDelay {
		return
	}
	t.restarts = make(map[string]int32, len(pod.Status.ContainerStatuses))
	for i := range pod.Status.ContainerStatuses {
		t.restarts[pod.Status.ContainerStatuses[i].Name] = pod.Status.ContainerStatuses[i].RestartCount
	}
}

// recordsPhase reports whether the attempts include a write of the phase with at least this number.
func recordsPhase(attempts []Attempt, number int) bool {
	return slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Mode == v1alpha1.ModePodPhase && a.Number >= number })
}

// startedSince reports whether the kubelet has started a container again since the given restart counts.
func startedSince(pod *corev1.Pod, restarts map[string]int32) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		before, known := restarts[s.Name]
		return known && s.RestartCount > before
	})
}

func anyContainerFailed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}
