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

// Next decides what to do about the pod of the snapshot at the given time. The same input gives the same decision.
func Next(snapshot Snapshot, now time.Time) Decision { return newSituation(snapshot, now).applyRules() }

// applyRules returns the decision of the first rule that applies.
func (s *situation) applyRules() Decision {
	for _, rule := range rules {
		if decision := rule(s); decision != nil {
			return s.complete(*decision)
		}
	}
	panic("plan: no rule applies; the last one always must")
}

// complete adds what every decision has, whatever rule it comes from.
func (s *situation) complete(d Decision) Decision {
	if len(s.Denied) > 0 {
		s.lookAgain(s.untilDeniedAgain(d.Stage))
	}
	if s.JobUnreadable {
		s.lookAgain(s.byAge(jobRetry))
	}
	for _, write := range d.Writes {
		// A CRR may end without a change of the pod.
		s.lookAgain(write.Timeout)
		if write.Mark != nil && write.Mark.Phase() != "" {
			d.OrderNotKept = s.orderNotKept()
		}
	}
	d.MainsDone, d.SidecarsEnded, d.MarkWaits, d.MarkDenied = s.mainsDone, s.sidecarsEnded(), s.markWaits, s.markDenied
	if d.Tried, d.TriedNumber = Tried(s.Attempts); d.Tried == v1alpha1.ModePodPhase && !s.endsByPhase(d.SidecarsEnded) {
		d.Tried, d.TriedNumber = "", 0
	}
	d.RequeueAfter = Soonest(d.RequeueAfter, s.requeueAfter)
	return d
}

// jobRetry is the shortest wait before the Job of a pod is read again.
const jobRetry = time.Minute

// byAge is a wait that grows with the age of the pod, from the shortest one to maxRetryInterval.
func (s *situation) byAge(shortest time.Duration) time.Duration {
	return min(max(s.now.Sub(s.Pod.CreationTimestamp.Time), shortest), maxRetryInterval)
}

// lookAgain requeues the pod after the wait, whatever rule applies. Zero means never.
func (s *situation) lookAgain(after time.Duration) { s.requeueAfter = Soonest(s.requeueAfter, after) }

// rules are tried in this order. A rule returns nil when it does not apply.
var rules = []func(*situation) *Decision{
	podUnprocessable,
	restartPolicyAlways,
	mirrorPod,
	markPod,
	decidedTooLate,
	noSidecar,
	podFinished,
	noMainContainer,
	podNotScheduled,
	podDeleted,
	podDisrupted,
	invalidAnnotation,
	mainContainersRunning,
	sidecarsTerminated,
	draining,
	nodeUnknown,
	terminate,
}

// situation is a snapshot with facts that more than one rule needs.
type situation struct {
	Snapshot
	now       time.Time
	mainsDone time.Time
	open      []resolve.Sidecar // sidecars that have not ended
	due       []resolve.Sidecar // open sidecars that have drained, and whose turn it is
	// lastOrder and longestDrain are the highest terminationOrder and the longest drain of open sidecars, and together is endTogether.
	lastOrder    int32
	longestDrain time.Duration
	together     bool
	// mainRestarts is how often each main container has been restarted. It is nil without attempts.
	mainRestarts map[string]int32
	// lostSwap is an attempt of mode Image whose record is lost, or nil. Attempts includes it.
	lostSwap *Attempt
	// retry lets a mode be used again after it has failed.
	retry bool
	// markWaits is Decision.MarkWaits, and markDenied Decision.MarkDenied.
	markWaits  bool
	markDenied string
	// requeueAfter is when to requeue the pod, whatever rule applies; zero means never.
	requeueAfter time.Duration
	// counting are the containers whose exit codes count: the main containers, and sidecars with exitCodePolicy Respect. The pod's phase by
	// the exit codes of those that have ended is outcome.
	counting []string
	outcome  corev1.PodPhase
}

func newSituation(snapshot Snapshot, now time.Time) *situation {
	s := &situation{Snapshot: snapshot, now: now, counting: slices.Clone(snapshot.View.Mains), outcome: corev1.PodSucceeded}
	for _, sidecar := range s.View.Sidecars {
		if respected(sidecar) {
			s.counting = append(s.counting, sidecar.Container)
		}
	}
	if slices.ContainsFunc(s.counting, s.failed) {
		s.outcome = corev1.PodFailed
	}
	s.mainsDone = s.whenMainsDone()
	if s.lostSwap = s.findLostSwap(); s.lostSwap != nil {
		s.Attempts = append(slices.Clone(s.Attempts), *s.lostSwap)
	}
	if attempt := s.phaseAttempt(); attempt != nil {
		s.Attempts = append(slices.Clone(s.Attempts), *attempt)
	}
	if len(s.Attempts) > 0 {
		s.mainRestarts = s.countMainRestarts()
	}
	s.setDue()
	return s
}

// whenMainsDone returns when the last main container ended, or zero while one runs or may run again.
func (s *situation) whenMainsDone() time.Time {
	var last time.Time
	if allContainersRestarting(s.Pod) {
		return last
	}
	for _, name := range s.View.Mains {
		end := s.terminatedForGood(name)
		if end == nil {
			return time.Time{}
		}
		last = later(last, end.FinishedAt.Time)
	}
	if len(s.View.Mains) > 0 && last.IsZero() {
		// A virtual kubelet may omit finishedAt. A fixed time in the past counts as done, and the drain does not start again.
		last = s.Pod.CreationTimestamp.Time
	}
	return last
}

// ended reports whether the sidecar has ended for good.
func (s *situation) ended(name string) bool {
	status := statusOf(s.Pod, name)
	if HasTerminalPhase(s.Pod) {
		// The kubelet starts nothing in a pod with a terminal phase.
		return status == nil || status.State.Running == nil
	}
	end := s.terminatedForGood(name)
	return end != nil && s.swapEnded(status, end)
}

// MainsDone returns when the last main container of the snapshot ended, by the node's clock. It is zero while one runs or may run
// again.
func MainsDone(snapshot Snapshot) time.Time {
	return (&situation{Snapshot: snapshot}).whenMainsDone()
}

func podDeleted(s *situation) *Decision {
	if s.Pod.DeletionTimestamp == nil {
		return nil
	}
	return ignored(v1alpha1.ReasonPodDeleted, "the pod is being deleted")
}

// podDisrupted leaves a pod alone that Kubernetes is ending: its containers stop without the operator.
func podDisrupted(s *situation) *Decision {
	deadline := Deadline(s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime)
	late := slices.ContainsFunc(s.View.Mains, func(name string) bool {
		end := s.terminatedForGood(name)
		return end != nil && !inTime(end, deadline)
	})
	if undisturbed(s.Pod) && !late || HasTerminalPhase(s.Pod) {
		return nil
	}
	return ignored(v1alpha1.ReasonPodDisrupted, "the pod is being evicted, or its kubelet is stopping it")
}

// IsJobType reports whether the pod's restartPolicy lets it finish.
func IsJobType(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

func restartPolicyAlways(s *situation) *Decision {
	if IsJobType(s.Pod) {
		return nil
	}
	return ignored(v1alpha1.ReasonRestartPolicyAlways, "the pod's restartPolicy is Always; only pods with Never or OnFailure are acted on")
}

// mirrorPod ignores mirror pods: the kubelet runs a static pod from a file on its node, and recreates a mirror pod that
// was changed.
func mirrorPod(s *situation) *Decision {
	if _, mirror := s.Pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return nil
	}
	return ignored(v1alpha1.ReasonMirrorPod, "the pod mirrors a static pod, which the kubelet runs from a file on its node")
}

func noSidecar(s *situation) *Decision {
	if len(s.View.Sidecars) > 0 {
		return nil
	}
	message := "no policy or environment variable declares a sidecar in this pod"
	listed := resolve.Listed(s.Pod)
	if len(listed) > 0 && !slices.ContainsFunc(listed, func(name string) bool { return containerOf(s.Pod, name) != nil }) {
		message += "; its annotation " + v1alpha1.AnnotationSidecars + " names none of its containers"
	}
	return ignored(v1alpha1.ReasonNoSidecar, message)
}

// invalidAnnotation stops at a pod whose past attempts cannot be read.
func invalidAnnotation(s *situation) *Decision {
	if s.InvalidAnnotation == "" || len(s.open) == 0 {
		return nil
	}
	return newDecision(StageStuck, v1alpha1.ReasonInvalidAnnotation,
		"%s; remove or correct the annotation, the operator leaves the pod alone until then", s.InvalidAnnotation)
}

// decidedTooLate ignores a pod that reads Failed although its main containers have succeeded: admission policy sidecar-termination-outcome was
// not at work, and the kubelet was faster than the operator.
func decidedTooLate(s *situation) *Decision {
	if s.Pod.Status.Phase != corev1.PodFailed || !IsMarked(s.Pod) {
		return nil
	}
	before := *s.Pod
	before.Status.Phase = corev1.PodRunning
	if _, phase := DecideOutcome(&before, s.Pod); phase != corev1.PodSucceeded {
		return nil
	}
	return ignored(v1alpha1.ReasonDecidedTooLate, "main containers have succeeded, but the kubelet had reported phase Failed before the operator "+
		"could decide the outcome, and admission policy sidecar-termination-outcome did not")
}

// podFinished ignores a pod with a terminal phase, unless the pod was ended by its phase and a container still runs.
func podFinished(s *situation) *Decision {
	if !HasTerminalPhase(s.Pod) || IsTearingDown(s.Pod) && MarkedToEnd(s.Pod) {
		return nil
	}
	return ignored(v1alpha1.ReasonPodFinished, "the pod has finished")
}

func noMainContainer(s *situation) *Decision {
	if len(s.View.Mains) > 0 {
		return nil
	}
	return newDecision(StageStuck, v1alpha1.ReasonNoMainContainer,
		"every container (%s) is declared a sidecar, so no main container says when the pod is done; leave at least one container undeclared",
		strings.Join(containers(s.View.Sidecars), ", "))
}

func podNotScheduled(s *situation) *Decision {
	if s.Pod.Spec.NodeName != "" {
		return nil
	}
	return newDecision(StageWaiting, v1alpha1.ReasonPodNotScheduled, "the pod has no node yet")
}

func mainContainersRunning(s *situation) *Decision {
	if !s.mainsDone.IsZero() {
		return nil
	}
	running := slices.DeleteFunc(slices.Clone(s.View.Mains), s.MainDone)
	return newDecision(StageWaiting, v1alpha1.ReasonMainContainersRunning, "waiting for main containers to finish: %s", strings.Join(running, ", "))
}

func sidecarsTerminated(s *situation) *Decision {
	if len(s.open) > 0 {
		return nil
	}
	return newDecision(StageTerminated, v1alpha1.ReasonTerminated, "every sidecar has ended")
}

func draining(s *situation) *Decision {
	if len(s.due) > 0 {
		return nil
	}
	s.lookAgain(s.untilNextDue())
	return newDecision(StageWaiting, v1alpha1.ReasonDraining,
		"main containers are done; waiting for sidecars to drain: %s", strings.Join(containers(s.open), ", "))
}

// sidecarsEnded returns when the last sidecar ended, or zero while one has not.
func (s *situation) sidecarsEnded() time.Time {
	var last time.Time
	if len(s.open) > 0 {
		return last
	}
	for _, sidecar := range s.View.Sidecars {
		if status := statusOf(s.Pod, sidecar.Container); status != nil && status.State.Terminated != nil {
			last = later(last, status.State.Terminated.FinishedAt.Time)
		}
	}
	return last
}

// untilNextDue returns the time until the next open sidecar has drained, or zero when all have.
func (s *situation) untilNextDue() time.Duration {
	var next time.Duration
	for _, sidecar := range s.open {
		next = Soonest(next, max(s.untilDue(sidecar), 0))
	}
	return next
}

// untilDue returns how much longer the sidecar drains; zero or less means that it has drained. A sidecar without a drain has,
// even where the operator's clock is behind the node's. Where the kubelet restarts containers, the longest drain is that of all: a sidecar that
// ends before would run again meanwhile, and its restart would count towards the Job's backoffLimit.
func (s *situation) untilDue(sidecar resolve.Sidecar) time.Duration {
	drain := s.drainOf(sidecar)
	if drain == 0 {
		return 0
	}
	return s.drainsSince().Add(drain).Sub(s.now)
}

func (s *situation) drainOf(sidecar resolve.Sidecar) time.Duration {
	if RestartsContainers(s.Pod) {
		return s.longestDrain
	}
	return sidecar.Drain
}

// drainsSince returns when drains began: by the operator's clock if it has seen the main containers end, and otherwise by the node's.
func (s *situation) drainsSince() time.Time {
	if s.DrainsSince.IsZero() {
		return s.mainsDone
	}
	return s.DrainsSince
}

func nodeUnknown(s *situation) *Decision {
	if s.Node != NodeUnknown {
		return nil
	}
	return newDecision(StageTerminating, v1alpha1.ReasonNodeUnknown,
		"main containers are done; the operator has not seen node %s yet", s.Pod.Spec.NodeName)
}

// Tried returns the mode of the newest attempt, and its number; empty and zero when there is none.
func Tried(attempts []Attempt) (v1alpha1.Mode, int) {
	if len(attempts) == 0 {
		return "", 0
	}
	newest := slices.MaxFunc(attempts, func(a, b Attempt) int { return a.Started.Compare(b.Started) })
	return newest.Mode, newest.Number
}

func newDecision(stage Stage, reason v1alpha1.Reason, format string, arguments ...any) *Decision {
	return &Decision{Stage: stage, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

func ignored(reason v1alpha1.Reason, message string) *Decision {
	return &Decision{Stage: StageIgnored, Reason: reason, Message: message}
}

// containers returns the names of the sidecars' containers, in order.
func containers(sidecars []resolve.Sidecar) []string {
	names := make([]string, 0, len(sidecars))
	for _, sidecar := range sidecars {
		names = append(names, sidecar.Container)
	}
	return names
}

// Soonest returns the shorter of two waits, where zero means none, as in Decision.RequeueAfter.
func Soonest(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}
