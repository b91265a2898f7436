// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// markPod marks a pod before its main containers are done, and again when the marks change. A pod that is found late is
// recorded by the same write.
func markPod(s *situation) *Decision {
	mark := s.wantedMark()
	if s.AssumeMarked || HasTerminalPhase(s.Pod) || s.recorded() || s.isCurrent(mark) {
		return nil
	}
	if !s.canMark() {
		return s.waitToMark()
	}
	decision := &Decision{
		Stage: StageWaiting, Reason: v1alpha1.ReasonMarking, Writes: []Write{marks(mark)},
		Message: fmt.Sprintf("marking the pod, so that exit codes of these containers do not count: %s", strings.Join(mark.IgnoredExitCodes, ", ")),
	}
	for _, sidecar := range s.View.Sidecars {
		// A pod that ends by its phase may end without another decision.
		if substitution := s.substitution(sidecar, s.fallbackChain(sidecar), history{}); substitution != nil && mark.End != "" {
			decision.Substitutions = append(decision.Substitutions, *substitution)
		}
	}
	return decision
}

// wantedMark is the mark that the pod should have now.
func (s *situation) wantedMark() Mark {
	// The policy answers a first mark. Without its answer, a record would only look as if the outcome was decided.
	answered := IsMarked(s.Pod) && !OutcomeUndecided(s.Pod)
	mark := Mark{Succeeded: answered && s.recordsItself() && s.countingSucceeded() && !s.mayRestartAll()}
	for _, sidecar := range s.View.Sidecars {
		if !respected(sidecar) {
			mark.IgnoredExitCodes = append(mark.IgnoredExitCodes, sidecar.Container)
		}
	}
	mark.End = s.endInAdvance()
	if s.JobUnreadable && IsMarked(s.Pod) {
		s.keepInjected(&mark)
	}
	return mark
}

// keepInjected keeps the containers of the pod's mark that may be injected, which the view takes for main containers. Their settings are
// unknown, so that the mark permits no end that the pod's does not.
func (s *situation) keepInjected(mark *Mark) {
	for _, name := range IgnoredExitCodes(s.Pod) {
		if _, declared := s.View.MainPolicies[name]; !declared && slices.Contains(s.View.Mains, name) {
			mark.IgnoredExitCodes = append(mark.IgnoredExitCodes, name)
		}
	}
	slices.Sort(mark.IgnoredExitCodes)
	mark.End = orderedEnds[min(slices.Index(orderedEnds, mark.End), slices.Index(orderedEnds, markedInAdvance(s.Pod)))]
}

// endInAdvance is what may end the pod without another write. A main container that has failed, or a record that the operator makes, needs
// no other end than the pod has, unless a sidecar drains: the pod was marked when nothing declared it, or its drain.
func (s *situation) endInAdvance() string {
	switch {
	case IsMarked(s.Pod) && (s.outcome() != corev1.PodSucceeded || !s.mainsDone.IsZero() && s.untilNextDue() == 0):
		return markedInAdvance(s.Pod)
	case s.mainsDone.IsZero() && s.outcome() == corev1.PodSucceeded && s.endsInAdvance():
		return v1alpha1.EndPodPhase
	}
	return s.permittedExits()
}

// permittedExits is what counts as the end of a sidecar beside an exit for good, where the kubelet restarts containers: a restart would count
// towards the Job's backoffLimit. A sidecar that was restarted, or waits, may run on unless the phase tears the pod down. One that waits when
// the main containers end has its drain before it.
func (s *situation) permittedExits() string {
	if !s.restarts() {
		return ""
	}
	if current := markedInAdvance(s.Pod); OutcomeUndecided(s.Pod) && current != v1alpha1.EndPodPhase {
		return current // nobody reads it
	}
	switch {
	case s.Node == NodeUnknown, len(s.Pod.Spec.ResourceClaims) > 0, slices.ContainsFunc(s.View.Sidecars, s.phaseCannotEnd):
		return v1alpha1.EndExited
	case slices.ContainsFunc(s.View.Sidecars, func(sidecar resolve.Sidecar) bool { return sidecar.Drain > 0 }):
		return v1alpha1.EndRestarted
	}
	return v1alpha1.EndWaiting
}

// restarts reports whether the kubelet may restart a container that fails.
func (s *situation) restarts() bool {
	return s.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure ||
		slices.ContainsFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
}

// phaseCannotEnd reports whether the pod's phase must not end the sidecar while it runs.
func (s *situation) phaseCannotEnd(sidecar resolve.Sidecar) bool {
	return s.whyNotPodPhase(sidecar).reason != ""
}

// endsInAdvance reports whether mode PodPhase is the first usable mode of every sidecar and none of them drains, so that the
// admission policy can end the pod without the operator. An unknown node may be virtual.
func (s *situation) endsInAdvance() bool {
	for _, sidecar := range s.View.Sidecars {
		chain := s.fallbackChain(sidecar)
		first := slices.IndexFunc(chain, ModeOption.Usable)
		if sidecar.Drain > 0 || first < 0 || chain[first].Mode != v1alpha1.ModePodPhase {
			return false
		}
	}
	return s.Node != NodeUnknown
}

// mayMark reports whether the operator may mark the pod now.
func (s *situation) mayMark() bool {
	_, denied := s.Denied[v1alpha1.ModePodPhase]
	return !denied && !s.now.Before(s.MarkAfter)
}

// canMark reports whether the pod, which needs another mark, can get it now. If it can later, the decision waits for it.
func (s *situation) canMark() bool {
	_, denied := s.Denied[v1alpha1.ModePodPhase]
	if s.markWaits = !denied && s.now.Before(s.MarkAfter); s.markWaits {
		s.lookAgain(s.MarkAfter.Sub(s.now))
	}
	return s.mayMark()
}

// markPatience is how long the sidecars of a pod run on for a mark that waits.
const markPatience = 5 * time.Minute

// waitToMark lets the sidecars of a pod with an outdated mark run on until it is corrected: the outcome would follow the wrong exit codes. A
// pod without a mark ends as if no admission policy decided its outcome.
func (s *situation) waitToMark() *Decision {
	patience := s.drainsSince().Add(markPatience).Sub(s.now)
	if !s.markWaits || !IsMarked(s.Pod) || s.mainsDone.IsZero() || patience <= 0 {
		return nil
	}
	return &Decision{
		Stage: StageWaiting, Reason: v1alpha1.ReasonMarking, RequeueAfter: patience,
		Message: "the pod was marked too often in a short time; its sidecars run on until the operator can mark it again",
	}
}

// unmark takes the mark back where nothing declares a sidecar, or everything, any more. It returns nothing if the mark decides nothing.
func (s *situation) unmark() []Write {
	if s.AssumeMarked || s.JobUnreadable || !MarkDecides(s.Pod) || !s.canMark() {
		return nil
	}
	return []Write{marks(Mark{})}
}

// MarkDecides reports whether the pod's mark can still decide its outcome.
func MarkDecides(pod *corev1.Pod) bool {
	decides := len(IgnoredExitCodes(pod)) > 0 || MarkedToEnd(pod)
	return decides && pod.DeletionTimestamp == nil && !MainsRecorded(pod) && !HasTerminalPhase(pod)
}

// answerLag is how soon the answer of the admission policy is seen.
const answerLag = 10 * time.Millisecond

// askAgain repeats the mark of a pod whose outcome the admission policy should have decided: it may not have been installed when the main
// containers ended, or a disruption was taken back. Other writes follow the answer, which may end the pod. A repetition that changes
// nothing is followed by others at growing intervals.
func (s *situation) askAgain(decision *Decision) {
	if s.AssumeMarked || !IsMarked(s.Pod) || decision.Stage != StageStuck && decision.Stage != StageTerminating || !s.unanswered() || !s.canMark() {
		return
	}
	if wait := s.MarkedAt.Add(s.untilMarkedAgain(s.MarkedAt)).Sub(s.now); wait > 0 && !s.missed() {
		s.lookAgain(wait)
		return
	}
	s.lookAgain(s.untilMarkedAgain(s.now))
	if len(decision.Writes) > 0 {
		s.lookAgain(answerLag)
		if decision.Stage == StageTerminating {
			decision.Reason = v1alpha1.ReasonMarking
			decision.Message = "main containers are done, and admission policy sidecar-termination-outcome has not decided the outcome; repeating the mark first"
		}
	}
	decision.Writes = []Write{marks(s.wantedMark())}
}

// unanswered reports whether the admission policy has not decided what it should have decided by now.
func (s *situation) unanswered() bool {
	if s.mainsDone.IsZero() || HasTerminalPhase(s.Pod) {
		return false
	}
	return OutcomeUndecided(s.Pod) || !s.recorded() && !s.recordsItself() && s.countingSucceeded()
}

// missed reports whether the admission policy was at work before the main containers ended, and was not asked since.
func (s *situation) missed() bool {
	return !OutcomeUndecided(s.Pod) && s.MarkedAt.Before(s.drainsSince())
}

// untilMarkedAgain returns the wait after a mark: as long as the main containers had been done.
func (s *situation) untilMarkedAgain(marked time.Time) time.Duration {
	return min(max(marked.Sub(s.drainsSince()), retryInterval), maxRetryInterval)
}

// A write that was denied is tried again after deniedRetry if another mode replaced it. On a stuck pod the wait grows with the time since its
// main containers ended, from minDeniedRetry to maxDeniedRetry, and while they run with the pod's age, from deniedRetry to maxRetryInterval.
const (
	deniedRetry    = 15 * time.Second
	minDeniedRetry = time.Second
	maxDeniedRetry = time.Minute
)

// untilDeniedAgain returns the wait before a denied write is tried again. It derives from times in the pod, so that the operator need not
// remember retries.
func (s *situation) untilDeniedAgain(stage Stage) time.Duration {
	if s.mainsDone.IsZero() {
		return s.byAge(deniedRetry)
	}
	waited := s.now.Sub(s.mainsDone)
	if stage != StageStuck || waited < 0 {
		return deniedRetry
	}
	return min(max(waited, minDeniedRetry), maxDeniedRetry)
}

// isCurrent reports whether the pod has the mark. A pod on which every exit code counts needs none.
func (s *situation) isCurrent(mark Mark) bool {
	if !IsMarked(s.Pod) {
		return len(mark.IgnoredExitCodes) == 0
	}
	return slices.Equal(IgnoredExitCodes(s.Pod), mark.IgnoredExitCodes) &&
		markedInAdvance(s.Pod) == mark.End && !mark.Succeeded
}

// recorded is MainsRecorded, or what it will be.
func (s *situation) recorded() bool {
	return MainsRecorded(s.Pod) || s.AssumeMarked && s.countingSucceeded()
}

// outcomeDecided reports whether the admission policy decides the pod's outcome, as far as is known. The mark of a pod will show it.
func (s *situation) outcomeDecided() bool {
	if IsMarked(s.Pod) {
		return !OutcomeUndecided(s.Pod)
	}
	return s.AssumeMarked || s.mayMark()
}

// undisturbed reports whether nobody has begun to end the pod. The kubelet then still starts containers.
func undisturbed(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Reason == "" && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// countingSucceeded reports whether every container whose exit code counts has exited 0 for good, before the pod's own deadline and
// any reported disruption.
func (s *situation) countingSucceeded() bool {
	if s.mainsDone.IsZero() || !undisturbed(s.Pod) {
		return false
	}
	succeeded := func(name string) bool {
		end := s.terminatedForGood(name)
		return end != nil && end.ExitCode == 0 && s.inTime(end)
	}
	for _, sidecar := range s.View.Sidecars {
		if respected(sidecar) && !succeeded(sidecar.Container) {
			return false
		}
	}
	return !slices.ContainsFunc(s.View.Mains, func(name string) bool { return !succeeded(name) })
}

// inTime reports whether the container ended before the pod's activeDeadlineSeconds. The kubelet may drop status.reason
// DeadlineExceeded while containers run (mergePodStatus in pkg/kubelet/status/status_manager.go).
func (s *situation) inTime(end *corev1.ContainerStateTerminated) bool {
	deadline, start := s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime
	return deadline == nil || start == nil || end.FinishedAt.Time.Before(start.Add(time.Duration(*deadline)*time.Second))
}

// recordsItself reports whether only the operator knows that the containers that count are done: the admission policy does not
// evaluate restart rules.
func (s *situation) recordsItself() bool {
	hasRules := func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	return slices.ContainsFunc(s.Pod.Spec.Containers, hasRules) || slices.ContainsFunc(s.Pod.Spec.InitContainers, hasRules) ||
		slices.ContainsFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool {
			sidecar := s.View.Sidecar(c.Name)
			counts := sidecar == nil || respected(*sidecar)
			return counts && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		})
}

// mayRestartAll reports whether an exit of an open sidecar may run the main containers again. A record would outlast that.
func (s *situation) mayRestartAll() bool {
	for _, sidecar := range s.open {
		if s.restartsAllContainers(sidecar.Container) {
			return true
		}
	}
	return false
}

// outcome is the pod's phase by the exit codes that count: those of the main containers, and of ended sidecars with
// exitCodePolicy Respect.
func (s *situation) outcome() corev1.PodPhase {
	if s.cachedOutcome == "" {
		s.cachedOutcome = s.computeOutcome()
	}
	return s.cachedOutcome
}

func (s *situation) computeOutcome() corev1.PodPhase {
	failed := func(name string) bool {
		end := s.terminatedForGood(name)
		return end != nil && end.ExitCode != 0
	}
	if slices.ContainsFunc(s.View.Mains, failed) {
		return corev1.PodFailed
	}
	for _, sidecar := range s.View.Sidecars {
		if respected(sidecar) && failed(sidecar.Container) {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}
