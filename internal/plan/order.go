// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// setDue finds the sidecars that have not ended, and those of them that are due: they have drained, and each sidecar with a lower
// terminationOrder has had its turn. What has been tried on a sidecar is not taken back.
func (s *situation) setDue() {
	for _, sidecar := range s.View.Sidecars {
		if !s.ended(sidecar.Container) {
			s.open = append(s.open, sidecar)
			s.lastOrder, s.longestDrain = max(s.lastOrder, sidecar.Order), max(s.longestDrain, sidecar.Drain)
		}
	}
	s.together = s.endTogether()
	current := s.lastOrder
	for _, sidecar := range s.open {
		if sidecar.Order < current && !s.hadTurn(sidecar) {
			current = sidecar.Order
		}
	}
	for _, sidecar := range s.open {
		if s.untilDue(sidecar) <= 0 && (sidecar.Order <= current || s.tried(sidecar)) {
			s.due = append(s.due, sidecar)
		}
	}
}

// hadTurn reports whether sidecars with a higher terminationOrder no longer wait for this one: it has ended once, or the pod's phase is
// to end all sidecars at once.
func (s *situation) hadTurn(sidecar resolve.Sidecar) bool {
	if s.endedOnce(sidecar) {
		return true
	}
	history := s.history(sidecar)
	next := firstMode(s.fallbackChain(sidecar), history.permits)
	return s.untilDue(sidecar) <= 0 && len(history.live) == 0 && next == v1alpha1.ModePodPhase
}

// endedOnce reports whether the sidecar, since it has drained, does not run and is not about to, has been stopped, or has outlived an attempt to
// stop it.
func (s *situation) endedOnce(sidecar resolve.Sidecar) bool {
	status := statusOf(s.Pod, sidecar.Container)
	switch {
	case s.mainsDone.IsZero() || s.untilDue(sidecar) > 0:
		return false
	case !isStarting(status) && status.State.Running == nil:
		return true
	}
	history := s.history(sidecar)
	return slices.ContainsFunc(history.failures, func(f Failure) bool { return f.Mode != v1alpha1.ModePodPhase }) ||
		slices.ContainsFunc(history.live, func(a *Attempt) bool {
			return a.Mode == v1alpha1.ModePodPhase || a.Stopped || s.cameBack(*a, sidecar.Container)
		})
}

// tried reports whether a CRR or a swapped image was to end the sidecar.
func (s *situation) tried(sidecar resolve.Sidecar) bool {
	return slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.Mode != v1alpha1.ModePodPhase && a.covers(sidecar.Container) && !s.beforeRestartOfAll(&a)
	})
}

// DueSince returns when the last of the due sidecars that nothing has been tried on became due. By then it had started for the first time and
// drained, and those before it, by their terminationOrder or because they were tried first, had ended. It is zero without such a sidecar, and
// while a main container may run again.
func DueSince(snapshot Snapshot, now time.Time) time.Time {
	s := newSituation(snapshot, now)
	untried := slices.DeleteFunc(slices.Clone(s.due), s.tried)
	if s.mainsDone.IsZero() || len(untried) == 0 {
		return time.Time{}
	}
	var since time.Time
	lastOrder := untried[0].Order
	for _, sidecar := range untried {
		since = later(since, s.drainsSince().Add(s.drainOf(sidecar)))
		if status := statusOf(s.Pod, sidecar.Container); status != nil && status.State.Running != nil && status.RestartCount == 0 {
			since = later(since, status.State.Running.StartedAt.Time)
		}
		lastOrder = max(lastOrder, sidecar.Order)
	}
	for _, before := range s.View.Sidecars {
		if before.Order < lastOrder || s.tried(before) {
			since = later(since, s.turnEnded(before))
		}
	}
	return since
}

// turnEnded returns when the sidecar last ended, and at least when the last attempt on it finished or else began; zero if neither is known.
func (s *situation) turnEnded(sidecar resolve.Sidecar) time.Time {
	var since time.Time
	if status := statusOf(s.Pod, sidecar.Container); status != nil {
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if state.Terminated != nil {
				since = later(since, state.Terminated.FinishedAt.Time)
			}
		}
	}
	for _, attempt := range s.Attempts {
		if attempt.covers(sidecar.Container) {
			since = later(since, later(attempt.Started, attempt.Finished))
		}
	}
	return since
}

// othersWait reports whether a sidecar with a higher terminationOrder waits for this one.
func (s *situation) othersWait(sidecar resolve.Sidecar) bool {
	return sidecar.Order < s.lastOrder && !s.endedOnce(sidecar)
}

// endTogether reports whether the pod's phase should end the sidecars at once. Where the kubelet restarts containers, OpenKruise would stop one
// after the other, and each restart before the last end counts towards the Job's backoffLimit. Without the admission policy, so does the restart
// of a single one, before the operator has seen its end.
func (s *situation) endTogether() bool {
	byOther := func(sidecar resolve.Sidecar) bool {
		return sidecar.Mode != v1alpha1.ModeAuto && sidecar.Mode != v1alpha1.ModePodPhase || !s.whyNotPodPhase(sidecar).Usable()
	}
	return RestartsContainers(s.Pod) && (len(s.View.Sidecars) > 1 || OutcomeUndecided(s.Pod)) && !slices.ContainsFunc(s.View.Sidecars, byOther)
}

// orderNotKept returns why the pod's phase would end sidecars at once that terminationOrder separates, or "".
func (s *situation) orderNotKept() string {
	for _, sidecar := range s.open {
		chain := s.fallbackChain(sidecar)
		first := slices.IndexFunc(chain, ModeOption.Usable)
		if !s.othersWait(sidecar) || first < 0 || chain[first].Mode != v1alpha1.ModePodPhase {
			continue
		}
		why := cmp.Or(whyNone(chain[:first]), "it is declared")
		return fmt.Sprintf("terminationOrder is not kept: mode PodPhase ends all sidecars at once, and is the only one for container %s (%s)", sidecar.Container, why)
	}
	return ""
}

// OrderNotKept returns why the terminationOrder of the pod's sidecars would not be kept, or "" where it would.
func OrderNotKept(snapshot Snapshot) string {
	return newSituation(snapshot, time.Time{}).orderNotKept()
}
