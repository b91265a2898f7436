// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// AllAttempts returns the attempts of the snapshot, and that of mode PodPhase which the pod shows.
func AllAttempts(snapshot Snapshot) []Attempt { return newSituation(snapshot, time.Time{}).Attempts }

// statusLag is how long a pod's status may lag behind what the mechanism reports.
const statusLag = 5 * time.Second

// history is the attempts on one container.
type history struct {
	live     []*Attempt
	wakeAt   time.Time // when the first live attempt can be judged again
	failures []Failure
	failed   map[v1alpha1.Mode]bool
	// retryAt is when a CRR may be repeated.
	retryAt time.Time
	// cameBack is true when the kubelet restarted the container after a CRR. Another CRR would only add a restart, which
	// counts towards the Job's backoffLimit.
	cameBack bool
}

// history judges every attempt on the sidecar by the pod's status.
func (s *situation) history(sidecar resolve.Sidecar) history {
	h := history{failed: map[v1alpha1.Mode]bool{}}
	crrs := 0
	for i := range s.Attempts {
		attempt := &s.Attempts[i]
		if !attempt.covers(sidecar.Container) || s.beforeRestartOfAll(attempt) {
			continue
		}
		if attempt.Mode == v1alpha1.ModeCRR {
			crrs++
		}
		deadline := attempt.Started.Add(s.allowance(*attempt, sidecar))
		message := s.verdict(*attempt, sidecar, deadline)
		if message == "" {
			if h.live = append(h.live, attempt); !attempt.Finished.IsZero() && attempt.Finished.Add(statusLag).Before(deadline) {
				deadline = attempt.Finished.Add(statusLag)
			}
			if h.wakeAt.IsZero() || deadline.Before(h.wakeAt) {
				h.wakeAt = deadline
			}
			continue
		}
		h.failed[attempt.Mode] = true
		h.cameBack = h.cameBack || attempt.Mode == v1alpha1.ModeCRR && s.cameBack(*attempt, sidecar.Container)
		h.failures = append(h.failures, Failure{
			Container: sidecar.Container, Mode: attempt.Mode, Attempt: attempt.Number, Message: message,
		})
		h.retryAt = later(h.retryAt, deadline)
	}
	h.retryAt = h.retryAt.Add(backoff(crrs))
	return h
}

// beforeRestartOfAll reports whether all containers have been restarted (KEP-5532) since the attempt began: main containers were done then.
func (s *situation) beforeRestartOfAll(attempt *Attempt) bool {
	for name, before := range attempt.MainRestarts {
		// A policy may have made a container a main container since.
		if restarts, isMain := s.mainRestarts[name]; isMain && before < restarts {
			return true
		}
	}
	return false
}

// countMainRestarts returns how often each main container has been restarted.
func (s *situation) countMainRestarts() map[string]int32 {
	restarts := make(map[string]int32, len(s.View.Mains))
	for _, name := range s.View.Mains {
		restarts[name] = 0
		if status := statusOf(s.Pod, name); status != nil {
			restarts[name] = status.RestartCount
		}
	}
	return restarts
}

// covers reports whether the attempt ends the container if it succeeds.
func (a Attempt) covers(container string) bool {
	if a.Mode == v1alpha1.ModePodPhase {
		return true
	}
	_, covered := a.RestartCounts[container]
	return covered
}

// allowance is how long the attempt may take. OpenKruise's daemon stops the containers of a CRR one after the other, each with
// its full grace period. So does the kubelet with containers whose images changed, but it tears a pod down all at once.
func (s *situation) allowance(attempt Attempt, sidecar resolve.Sidecar) time.Duration {
	return GracePeriod(s.Pod)*time.Duration(max(len(attempt.RestartCounts), 1)) + sidecar.Timeout
}

// verdict returns why the attempt has failed to end the sidecar, or "" while it may still succeed.
func (s *situation) verdict(attempt Attempt, sidecar resolve.Sidecar, deadline time.Time) string {
	failed := ""
	switch attempt.Mode {
	case v1alpha1.ModeCRR:
		failed = s.crrFailed(attempt, sidecar.Container)
	case v1alpha1.ModePodPhase:
		failed = s.phaseFailed()
	case v1alpha1.ModeImage, v1alpha1.ModeAuto:
	}
	switch {
	case !s.now.Before(deadline):
		return fmt.Sprintf("container %s had not ended %s after mode %s was used%s%s",
			sidecar.Container, deadline.Sub(attempt.Started), attempt.Mode, quoted(attempt.Message), s.waitingFor(sidecar.Container))
	case failed == "" && !attempt.Finished.IsZero() && !s.now.Before(attempt.Finished.Add(statusLag)):
		return fmt.Sprintf("mode %s finished without ending container %s%s", attempt.Mode, sidecar.Container, quoted(attempt.Message))
	}
	return failed
}

// waitingFor returns what keeps the container from running, such as an image that cannot be pulled, or "".
func (s *situation) waitingFor(container string) string {
	status := statusOf(s.Pod, container)
	if status == nil || status.State.Waiting == nil || status.State.Waiting.Reason == "" {
		return ""
	}
	return fmt.Sprintf("; it is waiting: %s", status.State.Waiting.Reason)
}

// permits reports whether the mode is usable and has not failed.
func (h history) permits(o ModeOption) bool { return o.Usable() && !h.failed[o.Mode] }

// hasLive reports whether an attempt of the mode is live.
func (h history) hasLive(mode v1alpha1.Mode) bool {
	return slices.ContainsFunc(h.live, func(a *Attempt) bool { return a.Mode == mode })
}

// nextNumber returns the number of the mode's next attempt. Obsolete CRRs do not count: the next CRR supersedes them and
// reuses their number, and with it their name. So a stale cache cannot lead to a second CRR. After MaxNumber follows the lowest free number.
func (s *situation) nextNumber(mode v1alpha1.Mode) int {
	next, taken := 1, map[int]bool{}
	for _, attempt := range s.Attempts {
		if attempt.Mode == mode && !s.obsolete(attempt) {
			next, taken[attempt.Number] = max(next, attempt.Number+1), true
		}
	}
	if next <= MaxNumber {
		return next
	}
	for next = 1; taken[next]; next++ {
	}
	return next
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// quoted returns the mechanism's own message in parentheses, cut to a bound, or "".
func quoted(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%.500q)", message)
}
