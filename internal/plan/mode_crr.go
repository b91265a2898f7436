// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const (
	// retryInterval is the wait from a CRR's deadline to its first repetition; it doubles up to maxRetryInterval.
	retryInterval    = 30 * time.Second
	maxRetryInterval = 10 * time.Minute
)

// whyNotCRR returns why OpenKruise cannot end the sidecar, or the zero value.
func (s *situation) whyNotCRR(sidecar resolve.Sidecar) ModeOption {
	switch {
	case s.Node == NodeVirtual:
		return unusable(v1alpha1.ReasonVirtualNode, "node %s is virtual and has no OpenKruise daemon", s.Pod.Spec.NodeName)
	case s.Node == NodeDaemonless:
		return unusable(v1alpha1.ReasonNoKruiseDaemon, "node %s does not run OpenKruise's daemon", s.Pod.Spec.NodeName)
	case !s.Capabilities.Enabled(v1alpha1.ModeCRR):
		return unusable(v1alpha1.ReasonModeDisabled, "the operator runs with --crr=Disabled")
	case s.Capabilities.NamespacesOnly:
		return unusable(v1alpha1.ReasonCRRUnavailable, "the operator runs with --watch-namespaces, so it cannot tell whether OpenKruise's webhook guards "+
			"ContainerRecreateRequests; declare another mode, or install the operator for the whole cluster")
	case s.Node == NodeNotRead:
		return s.nodeKindUnknown()
	case !s.Capabilities.CRRServed:
		return unusable(v1alpha1.ReasonCRRUnavailable, "OpenKruise does not serve ContainerRecreateRequests, or its webhook does not guard them; install OpenKruise, or declare another mode")
	case !s.mainsDone.IsZero() && !hasStarted(statusOf(s.Pod, sidecar.Container)):
		return unusable(v1alpha1.ReasonSidecarNotStarted, "container %s has never started, and OpenKruise stops only containers that have started", sidecar.Container)
	case s.restartsAllContainers(sidecar.Container):
		return restartsAll(sidecar)
	}
	return s.denied(v1alpha1.ModeCRR)
}

// crrAction creates one CRR for the plans with mode CRR.
func (p podPlan) crrAction(plans []sidecarPlan) []Write {
	plans = ofMode(plans, v1alpha1.ModeCRR)
	if len(plans) == 0 {
		return nil
	}
	return []Write{{
		Mode: v1alpha1.ModeCRR, Attempt: p.nextNumber(v1alpha1.ModeCRR),
		Containers: containersOf(plans), Timeout: p.timeout(plans, len(plans)), Supersedes: p.obsoleteCRRs(),
		MainRestarts: p.countMainRestarts(),
	}}
}

// waitBeforeCRR returns why a CRR cannot be created yet, or nil. OpenKruise works on one CRR of a pod at a time, so a second
// one would use up its deadline while it waits.
func (p podPlan) waitBeforeCRR(direct []sidecarPlan) *Decision {
	waiting := ofMode(direct, v1alpha1.ModeCRR)
	live := slices.IndexFunc(p.sidecars, func(sp sidecarPlan) bool { return sp.hasLive(v1alpha1.ModeCRR) })
	if len(waiting) == 0 || live < 0 {
		return nil
	}
	return newDecision(StageTerminating, v1alpha1.ReasonAttemptInProgress, "waiting for container %s to end before ending: %s",
		p.sidecars[live].sidecar.Container, strings.Join(containersOf(waiting), ", "))
}

// crrFailed returns why the CRR has failed to end the sidecar before its deadline, or "".
func (s *situation) crrFailed(attempt Attempt, container string) string {
	if s.cameBack(attempt, container) {
		return fmt.Sprintf("container %s was stopped, and the kubelet restarted it", container)
	}
	return ""
}

// mayMarkEnded reports whether a mark may say that the sidecars of the pod have ended: the decision writes nothing else, and the pod's outcome
// is recorded.
func (p podPlan) mayMarkEnded(decision *Decision) bool {
	return len(decision.Writes) == 0 && !p.AssumeMarked && MainsRecorded(p.Pod) && !HasTerminalPhase(p.Pod)
}

// markStopped marks a recorded pod as ended once OpenKruise reports that it has stopped all sidecars. A kubelet that reports an ignored
// exit code late would keep phase Failed of its own (docs/design/0002-outcome-at-the-api-server.md), or restart the container. Nothing is
// marked where mode PodPhase would not end the pod either.
func (p podPlan) markStopped(decision *Decision) {
	marked := MarkedToEnd(p.Pod) || ownValue(p.Pod, v1alpha1.AnnotationEnd) == v1alpha1.EndCRR
	if !p.mayMarkEnded(decision) || marked || len(p.Pod.Spec.ResourceClaims) > 0 {
		return
	}
	for _, sidecar := range p.open {
		stopped := slices.ContainsFunc(p.history(sidecar).live, func(a *Attempt) bool { return a.Stopped })
		if !stopped || !p.whyNotPodPhase(sidecar).Usable() {
			return
		}
	}
	if !p.canMark() {
		return
	}
	decision.Writes = []Write{p.marks(Mark{IgnoredExitCodes: p.wantedMark().IgnoredExitCodes, End: v1alpha1.EndCRR})}
	decision.Message = "OpenKruise has stopped sidecars; marking the pod as ended: " + strings.Join(containers(p.open), ", ")
}

// cameBack reports whether the container was restarted after the attempt began.
func (s *situation) cameBack(attempt Attempt, container string) bool {
	status := statusOf(s.Pod, container)
	return status != nil && status.RestartCount > attempt.RestartCounts[container]
}

// obsoleteCRRs lists the CRRs that the next one supersedes.
func (s *situation) obsoleteCRRs() []Attempt {
	var obsolete []Attempt
	for _, attempt := range s.Attempts {
		if s.obsolete(attempt) {
			obsolete = append(obsolete, attempt)
		}
	}
	return obsolete
}

// obsolete reports whether the attempt is an unfinished CRR whose containers have all ended. OpenKruise works on one CRR of a
// pod at a time, and such a CRR blocks the next one forever. It is deleted before the next one is created, because
// a deletion does not make OpenKruise's daemon look at other CRRs (pkg/daemon/containerrecreate/crr_daemon_controller.go).
func (s *situation) obsolete(attempt Attempt) bool {
	if attempt.Mode != v1alpha1.ModeCRR || !attempt.Finished.IsZero() {
		return false
	}
	for name := range attempt.RestartCounts {
		if !s.ended(name) {
			return false
		}
	}
	return true
}

// backoff returns the wait before the next CRR after the given number of CRRs.
func backoff(crrs int) time.Duration {
	wait := retryInterval
	for range crrs - 1 {
		wait = min(2*wait, maxRetryInterval)
	}
	return wait
}
