// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// A pod with a terminal phase does not count for quotas and the scheduler while its sidecars use their grace period.
const (
	// maxGraceOfPhase is the longest grace period of a pod that ends by its phase. It is also in config/admission/outcome.yaml.
	maxGraceOfPhase = time.Hour
	// maxGraceWithoutPolicy is the longest one if no policy declares the sidecar: anybody who can create pods can set environment
	// variables.
	maxGraceWithoutPolicy = time.Minute
)

// whyNotPodPhase returns why the pod's phase cannot end the sidecar, or the zero value.
func (s *situation) whyNotPodPhase(sidecar resolve.Sidecar) ModeOption {
	limit := s.maxGrace(sidecar)
	denied := s.denied(v1alpha1.ModePodPhase)
	switch {
	case s.Node == NodeVirtual:
		return unusable(v1alpha1.ReasonVirtualNode, "node %s is virtual and has no kubelet to tear the pod down", s.Pod.Spec.NodeName)
	case !s.Capabilities.Enabled(v1alpha1.ModePodPhase):
		return unusable(v1alpha1.ReasonModeDisabled, "the operator runs with --pod-phase=Disabled")
	case s.Node == NodeNotRead:
		return s.nodeKindUnknown()
	case respected(sidecar):
		return unusable(v1alpha1.ReasonExitCodesRespected, "exitCodePolicy is Respect for container %s, and the phase would override its exit code", sidecar.Container)
	case graceSeconds(s.Pod) > int64(limit/time.Second):
		return unusable(v1alpha1.ReasonGracePeriodTooLong, "the pod's terminationGracePeriodSeconds is %d, more than the %d that mode PodPhase allows here: "+
			"with a terminal phase, the pod would not count for quotas while its sidecars run", graceSeconds(s.Pod), int64(limit/time.Second))
	case denied.Usable() && !s.outcomeDecided():
		return unusable(v1alpha1.ReasonMarking, "the pod has lost its mark, and was marked too often in a short time")
	}
	return denied
}

// releasedTooEarly reports whether somebody else gets what the pod's sidecars still use when its phase is terminal: a claimed device, or ports of
// the node, which its kubelet then refuses to the Job's next pod.
func (s *situation) releasedTooEarly() bool {
	spec := s.Pod.Spec
	return len(spec.ResourceClaims) > 0 || spec.HostNetwork || slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	})
}

// maxGrace is the longest grace period of a pod whose phase ends the sidecar.
func (s *situation) maxGrace(sidecar resolve.Sidecar) time.Duration {
	limit := min(cmp.Or(s.Capabilities.MaxGracePeriod, maxGraceOfPhase), maxGraceOfPhase)
	if sidecar.Policy != nil || s.Capabilities.MaxGracePeriod == 0 {
		return limit
	}
	return min(limit, maxGraceWithoutPolicy)
}

// nodeKindUnknown is the reason of modes that need a kubelet. On a virtual node, the sidecars of a pod with a terminal phase would
// run on unseen.
func (s *situation) nodeKindUnknown() ModeOption {
	return unusable(v1alpha1.ReasonNodeKindUnknown,
		"the operator does not read nodes, and node %s may be virtual; set its --node-kind to the kind of all nodes, or to Read", s.Pod.Spec.NodeName)
}

// phaseAction ends the pod by its phase, which the admission policy sets. Beside a main container that has failed, the operator
// writes phase Failed itself.
func (p podPlan) phaseAction(plans []sidecarPlan) Write {
	mark := p.wantedMark()
	mark.End = v1alpha1.EndPodPhase
	if p.outcome == corev1.PodFailed {
		mark.End = v1alpha1.EndFailed
	}
	write := p.marks(mark)
	write.Attempt, write.Containers, write.Timeout = 1, containersOf(plans), p.timeout(plans, 1)
	return write
}

// waitBeforePhase returns why the pod cannot end by its phase yet, or nil. The phase ends every container of the pod, so each
// other sidecar must have ended or be stuck.
func (p podPlan) waitBeforePhase(direct []sidecarPlan) *Decision {
	if len(direct) > 0 {
		return newDecision(StageTerminating, v1alpha1.ReasonAttemptInProgress,
			"waiting for other sidecars to end first: %s", strings.Join(containersOf(direct), ", "))
	}
	if wait := p.untilNextDue(); wait > 0 {
		p.lookAgain(wait)
		return newDecision(StageTerminating, v1alpha1.ReasonDraining, "waiting for another sidecar to drain, because the pod's phase would end it")
	}
	for _, sp := range p.sidecars {
		name := sp.sidecar.Container
		switch {
		case sp.starting:
			return newDecision(StageTerminating, v1alpha1.ReasonSidecarStarting, beingCreated, name)
		case sp.hasLive(v1alpha1.ModeCRR), sp.hasLive(v1alpha1.ModeImage):
			return newDecision(StageTerminating, v1alpha1.ReasonAttemptInProgress, "waiting for container %s to end first", name)
		}
	}
	if i := slices.IndexFunc(p.open, respected); i >= 0 {
		return newDecision(StageTerminating, v1alpha1.ReasonExitCodesRespected,
			"container %s has exitCodePolicy Respect and has not ended, so the pod cannot end by its phase", p.open[i].Container)
	}
	return nil
}

// phaseAttempt returns the attempt of mode PodPhase that the pod shows, or nil. A mark in advance is none while a main container runs,
// after one has failed, or before a record that the operator makes.
func (s *situation) phaseAttempt() *Attempt {
	inAdvance := ownValue(s.Pod, v1alpha1.AnnotationEnd) == v1alpha1.EndPodPhase && !HasTerminalPhase(s.Pod)
	waits := s.outcome != corev1.PodSucceeded || s.recordsItself() && !MainsRecorded(s.Pod)
	if s.mainsDone.IsZero() || !MarkedToEnd(s.Pod) || inAdvance && waits {
		return nil
	}
	started := s.PhaseSince
	if started.IsZero() {
		started = s.mainsDone
	}
	return &Attempt{Mode: v1alpha1.ModePodPhase, Number: 1, Started: started}
}

// endsByPhase reports whether the attempt of mode PodPhase ends the pod, whose sidecars have ended at the time, or zero. It does not if the
// kubelet has set phase Failed, or if the sidecars had ended before the main containers.
func (s *situation) endsByPhase(ended time.Time) bool {
	byKubelet := s.Pod.Status.Phase == corev1.PodFailed && ownValue(s.Pod, v1alpha1.AnnotationEnd) != v1alpha1.EndFailed
	return !byKubelet && (ended.IsZero() || !ended.Before(s.mainsDone))
}

// phaseFailed returns why the phase has failed to end the pod before its deadline, or "". The write that marks a pod also sets its
// phase.
func (s *situation) phaseFailed() string {
	if HasTerminalPhase(s.Pod) {
		return ""
	}
	return fmt.Sprintf("the pod was marked to end by its phase, which is still %s", s.Pod.Status.Phase)
}
