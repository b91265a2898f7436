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
func Next(snapshot Snapshot, now time.Time) Decision {
	s := observe(snapshot, now)
	for _, rule := range rules {
		if decision := rule(s); decision != nil {
			decision.MainsDone, decision.Refused = s.mainsDone, s.Refused
			decision.Tried, decision.TriedNumber = Tried(s.Attempts)
			if wait, _ := s.untilRelease(); wait > 0 {
				decision.RequeueAfter = Soonest(decision.RequeueAfter, wait)
			}
			return *decision
		}
	}
	panic("plan: no rule has a verdict; the last one always must")
}

// rules are tried in this order. A rule returns nil when it does not apply.
var rules = []func(*situation) *Decision{
	podUnprocessable,
	podDeleted,
	restartPolicyAlways,
	mirrorPod,
	phaseIgnored,
	noSidecar,
	recordUnreadable,
	podFinished,
	noMainContainer,
	podNotScheduled,
	mainContainersRunning,
	sidecarsTerminated,
	draining,
	nodeUnknown,
	terminate,
}

// situation is a snapshot with the facts that more than one rule needs.
type situation struct {
	Snapshot
	now       time.Time
	mainsDone time.Time
	open      []resolve.Target // sidecars that have not ended
	due       []resolve.Target // open ones that have drained
	// unrecorded is an attempt that is no more among those of the snapshot, or nil.
	unrecorded *Attempt
	// counted is the outcome once it was asked for.
	counted corev1.PodPhase
}

func observe(snapshot Snapshot, now time.Time) *situation {
	s := &situation{Snapshot: snapshot, now: now}
	s.mainsDone = s.whenMainsDone()
	if s.unrecorded = s.unrecordedSwap(); s.unrecorded != nil {
		s.Attempts = append(slices.Clone(s.Attempts), *s.unrecorded)
	}
	for _, target := range s.View.Targets {
		if s.ended(target.Container) {
			continue
		}
		s.open = append(s.open, target)
		if s.untilDue(target) <= 0 {
			s.due = append(s.due, target)
		}
	}
	return s
}

// whenMainsDone returns when the last main container ended, or zero while one runs or may run again.
func (s *situation) whenMainsDone() time.Time {
	var last time.Time
	if allContainersRestarting(s.Pod) {
		return last
	}
	for _, name := range s.View.Mains {
		end := terminatedForGood(s.Pod, name)
		if end == nil {
			return time.Time{}
		}
		if finished := end.FinishedAt.Time; last.Before(finished) {
			last = finished
		}
	}
	if len(s.View.Mains) > 0 && last.IsZero() {
		// A virtual kubelet may leave finishedAt out. Any past time says "done"; this one starts no drain anew.
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
	end := terminatedForGood(s.Pod, name)
	if end == nil {
		return false
	}
	if s.unrecorded != nil && s.unrecorded.covers(name) {
		return s.swappedRunEnded(status, end)
	}
	for _, attempt := range s.Attempts {
		before, swapped := attempt.RestartCounts[name]
		if attempt.Mode != v1alpha1.ModeImage || !swapped {
			continue
		}
		// The kubelet stops the old container and then starts the new one, whatever the restartPolicy. The end of the
		// old one is not yet the end.
		if status.RestartCount <= before && !end.FinishedAt.Time.Before(attempt.Started) {
			return false
		}
	}
	return true
}

func podDeleted(s *situation) *Decision {
	if s.Pod.DeletionTimestamp == nil {
		return nil
	}
	return ignored(v1alpha1.ReasonPodDeleted, "the pod is being deleted")
}

func restartPolicyAlways(s *situation) *Decision {
	if s.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever || s.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		return nil
	}
	return ignored(v1alpha1.ReasonRestartPolicyAlways, "the pod's restartPolicy is Always; only pods with Never or OnFailure are acted on")
}

// mirrorPod leaves the image of a static pod alone: the kubelet runs that by a file of its node, and makes the mirror pod
// anew when it differs.
func mirrorPod(s *situation) *Decision {
	if _, mirror := s.Pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return nil
	}
	return ignored(v1alpha1.ReasonMirrorPod, "the pod mirrors a static pod, which is run by a file of its node")
}

func noSidecar(s *situation) *Decision {
	if len(s.View.Targets) > 0 {
		return nil
	}
	return ignored(v1alpha1.ReasonNoSidecar, "no policy in force and no environment variable makes a container of the pod a sidecar")
}

// recordUnreadable leaves a pod alone of which it cannot be known what was done to it.
func recordUnreadable(s *situation) *Decision {
	if s.Unreadable == "" || len(s.open) == 0 {
		return nil
	}
	return &Decision{
		Stage: StageStuck, Reason: v1alpha1.ReasonUnreadableRecord,
		Message: s.Unreadable + "; nothing is done to the pod until the annotation is removed or put right",
	}
}

func podFinished(s *situation) *Decision {
	if !HasTerminalPhase(s.Pod) || s.writtenPhase() != nil {
		return nil
	}
	return ignored(v1alpha1.ReasonPodFinished, "the pod has finished")
}

func noMainContainer(s *situation) *Decision {
	if len(s.View.Mains) > 0 {
		return nil
	}
	return &Decision{
		Stage:  StageStuck,
		Reason: v1alpha1.ReasonNoMainContainer,
		Message: fmt.Sprintf("every container (%s) is declared a sidecar, so nothing says when the pod is done; leave at least one container undeclared",
			strings.Join(containers(s.View.Targets), ", ")),
	}
}

func podNotScheduled(s *situation) *Decision {
	if s.Pod.Spec.NodeName != "" {
		return nil
	}
	return &Decision{Stage: StageWaiting, Reason: v1alpha1.ReasonPodNotScheduled, Message: "the pod has no node yet"}
}

func mainContainersRunning(s *situation) *Decision {
	if !s.mainsDone.IsZero() {
		return nil
	}
	return &Decision{
		Stage:   StageWaiting,
		Reason:  v1alpha1.ReasonMainContainersRunning,
		Message: fmt.Sprintf("waiting for main containers to be done: %s", strings.Join(s.mainsNotDone(), ", ")),
	}
}

func (s *situation) mainsNotDone() []string {
	if allContainersRestarting(s.Pod) {
		return s.View.Mains
	}
	return slices.DeleteFunc(slices.Clone(s.View.Mains), func(name string) bool { return terminatedForGood(s.Pod, name) != nil })
}

func sidecarsTerminated(s *situation) *Decision {
	if len(s.open) > 0 {
		return nil
	}
	return &Decision{Stage: StageTerminated, Reason: v1alpha1.ReasonTerminated, Message: "every sidecar has ended"}
}

func draining(s *situation) *Decision {
	if len(s.due) > 0 {
		return nil
	}
	return &Decision{
		Stage:        StageWaiting,
		Reason:       v1alpha1.ReasonDraining,
		Message:      fmt.Sprintf("main containers are done; giving sidecars time to drain: %s", strings.Join(containers(s.open), ", ")),
		RequeueAfter: s.untilNextDue(),
	}
}

// untilNextDue returns the time until the next open sidecar has drained, or zero when all have.
func (s *situation) untilNextDue() time.Duration {
	var next time.Duration
	for _, target := range s.open {
		if wait := s.untilDue(target); wait > 0 {
			next = Soonest(next, wait)
		}
	}
	return next
}

// untilDue returns how much longer the target is to drain, zero or less when it has. A target that need not drain is due
// even where the operator's clock is behind that of the node.
func (s *situation) untilDue(target resolve.Target) time.Duration {
	if target.Drain == 0 {
		return 0
	}
	return s.mainsDone.Add(target.Drain).Sub(s.now)
}

func nodeUnknown(s *situation) *Decision {
	if s.Node != NodeUnknown {
		return nil
	}
	return &Decision{
		Stage:   StageTerminating,
		Reason:  v1alpha1.ReasonNodeUnknown,
		Message: fmt.Sprintf("main containers are done; node %s is not known yet", s.Pod.Spec.NodeName),
	}
}

// writtenPhase returns the newest attempt of mode PodPhase, or nil.
func (s *situation) writtenPhase() *Attempt {
	var newest *Attempt
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Mode == v1alpha1.ModePodPhase && (newest == nil || a.Number > newest.Number) {
			newest = a
		}
	}
	return newest
}

// Tried returns the mode that the newest attempt belongs to, and its number; empty and zero when there is none.
func Tried(attempts []Attempt) (v1alpha1.Mode, int) {
	var newest Attempt
	for _, a := range attempts {
		if newest.Mode == "" || a.Started.After(newest.Started) {
			newest = a
		}
	}
	return newest.For, newest.Number
}

// lastEvent returns the newest time at which something is known to have happened that changes the pod's status: a
// sidecar was due, an attempt began or failed, a container was seen to have started or ended. When it did by the clock of
// its node is of no account, for that may be behind.
func (s *situation) lastEvent() time.Time {
	last := s.mainsDone
	see := func(t time.Time) {
		if t.After(last) && !t.After(s.now) {
			last = t
		}
	}
	for _, target := range s.due {
		see(s.mainsDone.Add(target.Drain))
		for _, attempt := range s.Attempts {
			see(attempt.Started)
			see(attempt.Finished)
			see(attempt.Started.Add(s.allowance(attempt, target)))
		}
	}
	see(s.ContainersSince)
	return last
}

func ignored(reason v1alpha1.Reason, message string) *Decision {
	return &Decision{Stage: StageIgnored, Reason: reason, Message: message}
}

// containers returns the names of the targets, in their order.
func containers(targets []resolve.Target) []string {
	names := make([]string, 0, len(targets))
	for _, target := range targets {
		names = append(names, target.Container)
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
