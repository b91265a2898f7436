// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const (
	// maxPhaseWrites bounds how often the phase is written again after it came back.
	maxPhaseWrites = 3
	// maxPhaseDelay bounds the wait for the kubelet to learn of a written phase. Its watch is made anew up to a minute
	// after it was interrupted (k8s.io/client-go tools/cache/reflector.go: 30 s, and as much again at random).
	maxPhaseDelay = 2 * time.Minute
	// maxSettlePeriods bounds the wait for a quiet pod, in settle periods: a pod may be written to for ever.
	maxSettlePeriods = 20
	// statusLag is how long a pod's status may take to show what the mechanism has already reported.
	statusLag = 5 * time.Second
	// retryInterval is the time from the failure of the last usable mode to its first repetition; it doubles up to
	// maxRetryInterval.
	retryInterval    = 30 * time.Second
	maxRetryInterval = 10 * time.Minute
)

// history is what has been tried on one container.
type history struct {
	live     []*Attempt
	wakeAt   time.Time // when the first of the live attempts may be judged anew
	failures []Failure
	failed   map[v1alpha1.Mode]bool
	// retryAt is when the last failure may be followed by a repetition.
	retryAt time.Time
	// cameBack is true when the kubelet started the container again after a request. Repeating that adds restarts,
	// which count towards the Job's backoffLimit, and ends nothing.
	cameBack bool
}

// history judges every attempt on the target by the pod's status.
func (s *situation) history(target resolve.Target) history {
	h := history{failed: map[v1alpha1.Mode]bool{}}
	requests := 0
	for i := range s.Attempts {
		attempt := &s.Attempts[i]
		if !attempt.covers(target.Container) {
			continue
		}
		if attempt.Mode == v1alpha1.ModeCRR {
			requests++
		}
		deadline := attempt.Started.Add(s.allowance(*attempt, target))
		message := s.verdict(*attempt, target, deadline)
		if message == "" {
			if h.live = append(h.live, attempt); !attempt.Finished.IsZero() {
				deadline = earlier(deadline, attempt.Finished.Add(statusLag))
			}
			if h.wakeAt.IsZero() || deadline.Before(h.wakeAt) {
				h.wakeAt = deadline
			}
			continue
		}
		h.failed[attempt.Mode] = true
		h.cameBack = h.cameBack || attempt.Mode == v1alpha1.ModeCRR && s.cameBack(*attempt, target.Container)
		h.failures = append(h.failures, Failure{
			Container: target.Container, Mode: attempt.Mode, Attempt: attempt.Number, Message: message,
		})
		if h.retryAt.Before(deadline) {
			h.retryAt = deadline
		}
	}
	h.retryAt = h.retryAt.Add(backoff(requests))
	return h
}

// covers reports whether the attempt is to end the container.
func (a Attempt) covers(container string) bool {
	if a.Mode == v1alpha1.ModePodPhase {
		return true
	}
	_, covered := a.RestartCounts[container]
	return covered
}

// allowance is how long the attempt may take. Kruise's daemon stops the containers of a request one after the other,
// each with its full grace period, and so does the kubelet with containers whose images changed. It tears a pod down
// all at once.
func (s *situation) allowance(attempt Attempt, target resolve.Target) time.Duration {
	return GracePeriod(s.Pod)*time.Duration(max(len(attempt.RestartCounts), 1)) + target.Deadline
}

// verdict returns why the attempt has failed to end the target, or nothing while it may still succeed.
func (s *situation) verdict(attempt Attempt, target resolve.Target, deadline time.Time) string {
	switch {
	case !s.now.Before(deadline):
		return fmt.Sprintf("container %s had not ended %s after mode %s was used%s%s",
			target.Container, deadline.Sub(attempt.Started), attempt.Mode, quoted(attempt.Message), s.waitingFor(target.Container))
	case attempt.Mode == v1alpha1.ModePodPhase && !HasTerminalPhase(s.Pod) && attempt.Number >= maxPhaseWrites-1:
		return fmt.Sprintf("the phase was written %d times and came back as %s", maxPhaseWrites, s.Pod.Status.Phase)
	case attempt.Mode == v1alpha1.ModeCRR && s.cameBack(attempt, target.Container):
		return fmt.Sprintf("container %s was stopped and the kubelet started it again", target.Container)
	case !attempt.Finished.IsZero() && !s.now.Before(attempt.Finished.Add(statusLag)):
		return fmt.Sprintf("mode %s was finished without ending container %s%s", attempt.Mode, target.Container, quoted(attempt.Message))
	}
	return ""
}

// waitingFor says what keeps the container from running, such as an image that cannot be pulled, or nothing.
func (s *situation) waitingFor(container string) string {
	status := statusOf(s.Pod, container)
	if status == nil || status.State.Waiting == nil || status.State.Waiting.Reason == "" {
		return ""
	}
	return fmt.Sprintf("; it is waiting: %s", status.State.Waiting.Reason)
}

// cameBack reports whether the container was started again after the attempt began.
func (s *situation) cameBack(attempt Attempt, container string) bool {
	status := statusOf(s.Pod, container)
	return status != nil && status.RestartCount > attempt.RestartCounts[container]
}

// phaseCameBack reports whether the phase was written, is no longer there, and may be written again.
func (s *situation) phaseCameBack(h history, target resolve.Target) bool {
	return !HasTerminalPhase(s.Pod) && h.has(v1alpha1.ModePodPhase) &&
		s.obstacleToPodPhase(target) == (obstacle{}) && !isStarting(statusOf(s.Pod, target.Container))
}

// has reports whether an attempt of the mode is live.
func (h history) has(mode v1alpha1.Mode) bool {
	return slices.ContainsFunc(h.live, func(a *Attempt) bool { return a.Mode == mode })
}

// nextNumber returns the number of the mode's next attempt. A spent request, which the next one supersedes, does not count:
// whether or not its deletion has been seen, the next one has the same name, and cannot be made twice.
func (s *situation) nextNumber(mode v1alpha1.Mode) int {
	next := 0
	for _, attempt := range s.Attempts {
		if attempt.Mode == mode && !s.spent(attempt) {
			next = max(next, attempt.Number+1)
		}
	}
	return next
}

// spentRequests lists the requests that are spent.
func (s *situation) spentRequests() []Attempt {
	var spent []Attempt
	for _, attempt := range s.Attempts {
		if s.spent(attempt) {
			spent = append(spent, attempt)
		}
	}
	return spent
}

// spent reports whether the attempt is an unfinished request whose containers have all ended. Kruise works on one request
// of a pod at a time, and one whose containers stay dead stays in its way. It goes before the next is made: Kruise's
// daemon does not look at the others when one is deleted (pkg/daemon/containerrecreate/crr_daemon_controller.go).
func (s *situation) spent(attempt Attempt) bool {
	return attempt.Mode == v1alpha1.ModeCRR && attempt.Finished.IsZero() && s.allEnded(attempt)
}

func (s *situation) allEnded(attempt Attempt) bool {
	for name := range attempt.RestartCounts {
		if !s.ended(name) {
			return false
		}
	}
	return true
}

// backoff returns the wait before the repetition that follows the given number of requests.
func backoff(requests int) time.Duration {
	wait := retryInterval
	for range requests - 1 {
		if wait >= maxRetryInterval/2 {
			return maxRetryInterval
		}
		wait *= 2
	}
	return wait
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func quoted(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%.500q)", message)
}
