// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// markPod marks a pod before its main containers are done, and again when the mark changes or nothing declares a sidecar any more. Its write
// also carries what the admission policy should have recorded and decided, and has not: the policy is not installed, was away, or
// could not know. Where it is at work, each write of the status has its decision, and nothing is left.
func markPod(s *situation) *Decision {
	mark := s.wantedMark()
	if !s.mayNeed(mark) {
		return nil
	}
	write, current := s.marks(mark), s.isCurrent(mark)
	if current && write.Mark.Record == "" {
		return nil
	}
	if !s.canMark() {
		return s.waitToMark()
	}
	if wait := s.untilRecordedAgain(); current && wait > 0 {
		s.lookAgain(wait)
		return nil
	}
	decision := s.explainMark(*write.Mark)
	decision.Writes = []Write{write}
	for _, sidecar := range s.View.Sidecars {
		// A pod that ends by its phase may end without another decision.
		if substitution := s.substitution(sidecar, s.fallbackChain(sidecar), history{}); substitution != nil && write.Mark.End != "" {
			decision.Substitutions = append(decision.Substitutions, *substitution)
		}
	}
	return decision
}

// mayNeed reports whether the pod may need the mark, or a record: not if every exit code counts already.
func (s *situation) mayNeed(mark Mark) bool {
	return !s.AssumeMarked && !HasTerminalPhase(s.Pod) && s.Pod.Spec.NodeName != "" && (len(mark.IgnoredExitCodes) > 0 || MarkDecides(s.Pod))
}

// explainMark returns the decision to write the mark, without the write.
func (s *situation) explainMark(mark Mark) *Decision {
	decision := &Decision{Stage: StageWaiting, Reason: v1alpha1.ReasonMarking}
	switch undeclared := cmp.Or(noSidecar(s), noMainContainer(s)); {
	case mark.Record != "":
		decision.Stage = StageTerminating
		decision.Message = "main containers have succeeded; recording it, because admission policy sidecar-termination-outcome has not"
	case len(mark.IgnoredExitCodes) > 0:
		decision.Message = "marking the pod, so that exit codes of these containers do not count: " + strings.Join(mark.IgnoredExitCodes, ", ")
	case undeclared != nil:
		return undeclared
	default:
		decision.Message = "marking the pod, so that the exit code of every container counts"
	}
	return decision
}

// marks returns the write of a mark that ends no sidecar, with what the admission policy would record and decide by it.
func (s *situation) marks(mark Mark) Write {
	if s.recordsItself() && s.countingSucceeded() && (mark.End == v1alpha1.EndPodPhase || !s.mayRestartAll()) && !MainsRecorded(s.Pod) {
		mark.Record = v1alpha1.MainsSucceeded
	}
	record, phase := DecideOutcome(s.Pod, mark.written(s.Pod))
	if phase != s.Pod.Status.Phase || record == v1alpha1.MainsSucceeded && !MainsRecorded(s.Pod) {
		mark.Record = record
	}
	return Write{Mode: v1alpha1.ModePodPhase, Mark: &mark}
}

// wantedMark is the mark that the pod should have now. Once the main containers have succeeded, it does not change.
func (s *situation) wantedMark() Mark {
	if MainsRecorded(s.Pod) {
		return Mark{IgnoredExitCodes: IgnoredExitCodes(s.Pod), End: ownValue(s.Pod, v1alpha1.AnnotationEnd)}
	}
	mark := Mark{IgnoredExitCodes: s.ignoredExitCodes(), End: s.endInAdvance()}
	if s.JobUnreadable && IsMarked(s.Pod) {
		s.keepInjected(&mark)
	}
	if len(s.View.Mains) == 0 || len(mark.IgnoredExitCodes) == 0 {
		return Mark{} // every exit code counts
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

// endInAdvance is what may end the pod without another write. A main container that has failed, or a record that the operator makes, is no
// reason for another end than the pod has, unless a sidecar drains: the pod was marked when nothing declared its drain.
func (s *situation) endInAdvance() string {
	hasSidecars := len(IgnoredExitCodes(s.Pod)) > 0 || markedInAdvance(s.Pod) != ""
	switch {
	case IsMarked(s.Pod) && hasSidecars && (s.outcome != corev1.PodSucceeded || !s.mainsDone.IsZero() && s.untilNextDue() == 0):
		return markedInAdvance(s.Pod)
	case s.mainsDone.IsZero() && s.outcome == corev1.PodSucceeded && s.endsInAdvance():
		return v1alpha1.EndPodPhase
	}
	return s.permittedExits()
}

// permittedExits is what counts as the end of a sidecar beside an exit for good, where the kubelet restarts containers: a restart would count
// towards the Job's backoffLimit. A sidecar that was restarted, or waits, may run on unless the phase tears the pod down. One that waits when
// the main containers end has its drain before it.
func (s *situation) permittedExits() string {
	if !RestartsContainers(s.Pod) {
		return ""
	}
	switch {
	case s.Node == NodeUnknown, len(s.Pod.Spec.ResourceClaims) > 0, slices.ContainsFunc(s.View.Sidecars, s.phaseMayNotEnd):
		return v1alpha1.EndExited
	case slices.ContainsFunc(s.View.Sidecars, func(sidecar resolve.Sidecar) bool { return sidecar.Drain > 0 }):
		return v1alpha1.EndRestarted
	}
	return v1alpha1.EndWaiting
}

// RestartsContainers reports whether the kubelet may restart a container of the Job-type pod that fails.
func RestartsContainers(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure ||
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
}

// phaseMayNotEnd reports whether PodPhase is no mode of the sidecar, or cannot end it.
func (s *situation) phaseMayNotEnd(sidecar resolve.Sidecar) bool {
	return !slices.Contains(s.modesOf(sidecar), v1alpha1.ModePodPhase) || !s.whyNot(v1alpha1.ModePodPhase, sidecar).Usable()
}

// endsInAdvance reports whether mode PodPhase is the first usable mode of every sidecar and none of them drains, so that the
// admission policy can end the pod without the operator. An unknown node may be virtual.
func (s *situation) endsInAdvance() bool {
	for _, sidecar := range s.View.Sidecars {
		if sidecar.Drain > 0 || firstMode(s.fallbackChain(sidecar), ModeOption.Usable) != v1alpha1.ModePodPhase {
			return false
		}
	}
	return s.Node != NodeUnknown
}

// mayMark reports whether the operator may mark the pod now.
func (s *situation) mayMark() bool {
	return s.denied(v1alpha1.ModePodPhase).Usable() && !s.now.Before(s.MarkAfter)
}

// canMark reports whether the pod, which needs another mark, can get it now. If it can later, the decision waits for it.
func (s *situation) canMark() bool {
	s.markDenied = s.Denied[v1alpha1.ModePodPhase]
	if s.markWaits = s.denied(v1alpha1.ModePodPhase).Usable() && s.now.Before(s.MarkAfter); s.markWaits {
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
	s.lookAgain(patience)
	return newDecision(StageWaiting, v1alpha1.ReasonMarking,
		"the pod was marked too often in a short time; its sidecars run on until the operator can mark it again")
}

// MarkDecides reports whether the pod's mark can still decide its outcome.
func MarkDecides(pod *corev1.Pod) bool {
	mayRecord := pod.DeletionTimestamp == nil && (len(IgnoredExitCodes(pod)) > 0 || MarkedToEnd(pod))
	return !HasTerminalPhase(pod) && (mayRecord || MainsRecorded(pod))
}

// untilRecordedAgain returns the wait before a record is repeated that the pod has not kept. It grows with the time since the main containers
// ended.
func (s *situation) untilRecordedAgain() time.Duration {
	if s.MarkVersion == "" || s.MarkVersion != s.Pod.ResourceVersion {
		return 0
	}
	return s.MarkedAt.Add(min(max(s.MarkedAt.Sub(s.drainsSince()), retryInterval), maxRetryInterval)).Sub(s.now)
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

// isCurrent reports whether the pod has the mark.
func (s *situation) isCurrent(mark Mark) bool {
	return IsMarked(s.Pod) && slices.Equal(IgnoredExitCodes(s.Pod), mark.IgnoredExitCodes) &&
		ownValue(s.Pod, v1alpha1.AnnotationEnd) == mark.End
}

// outcomeDecided reports whether the pod is or can be marked, so that its outcome is that of its main containers.
func (s *situation) outcomeDecided() bool { return IsMarked(s.Pod) || s.AssumeMarked || s.mayMark() }

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
	deadline := Deadline(s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime)
	return !slices.ContainsFunc(s.counting, func(name string) bool {
		end := s.terminatedForGood(name)
		return end == nil || end.ExitCode != 0 || !inTime(end, deadline)
	})
}

// Deadline returns when the activeDeadlineSeconds of a pod or a Job pass, given when it started. It returns zero if nothing passes.
func Deadline(seconds *int64, started *metav1.Time) time.Time {
	if seconds == nil || started.IsZero() {
		return time.Time{}
	}
	return started.Add(time.Duration(*seconds) * time.Second)
}

// inTime reports whether the container ended before the pod's deadline, as far as it has one and a virtual kubelet says when. The kubelet
// may drop status.reason DeadlineExceeded while containers run (mergePodStatus in pkg/kubelet/status/status_manager.go).
func inTime(end *corev1.ContainerStateTerminated, deadline time.Time) bool {
	return deadline.IsZero() || end.FinishedAt.Time.Before(deadline)
}

// recordsItself reports whether the operator records that the containers that count have succeeded.
func (s *situation) recordsItself() bool { return restartsByRule(s.Pod, s.ignoredExitCodes()) }

// ignoredExitCodes are the sidecars whose exit codes do not count, sorted by name.
func (s *situation) ignoredExitCodes() []string {
	var names []string
	for _, sidecar := range s.View.Sidecars {
		if !respected(sidecar) {
			names = append(names, sidecar.Container)
		}
	}
	return names
}

// mayRestartAll reports whether an exit of an open sidecar may run the main containers again. A record would outlast that.
func (s *situation) mayRestartAll() bool {
	return slices.ContainsFunc(s.open, func(sidecar resolve.Sidecar) bool { return s.restartsAllContainers(sidecar.Container) })
}
