// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// UnguardedWindow is a stabilization window that is long enough without the phase guard: until its pod worker has seen a written
// phase, a kubelet may still report the old one (pkg/kubelet/status/status_manager.go syncBatch).
const UnguardedWindow = 1500 * time.Millisecond

const (
	// maxPhaseWrites bounds how often the phase is written, because it may come back each time.
	maxPhaseWrites = 3
	// maxPhaseDelay bounds the wait for the kubelet to see a written phase. It restarts an interrupted watch after up to
	// a minute (k8s.io/client-go tools/cache/reflector.go: 30 s, and up to 30 s of jitter).
	maxPhaseDelay = 2 * time.Minute
	// maxStabilizationWindows bounds the wait for an unchanged pod, in stabilization windows. Some pods change all the time.
	maxStabilizationWindows = 20
	// statusLag is how long a pod's status may lag behind what the mechanism reports.
	statusLag = 5 * time.Second
	// retryInterval is the wait from a CRR's deadline to its first repetition; it doubles up to maxRetryInterval.
	retryInterval    = 30 * time.Second
	maxRetryInterval = 10 * time.Minute
)

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
		if !attempt.covers(sidecar.Container) {
			continue
		}
		if attempt.Mode == v1alpha1.ModeCRR {
			crrs++
		}
		deadline := attempt.Started.Add(s.allowance(*attempt, sidecar))
		message := s.verdict(*attempt, sidecar, deadline)
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
		h.cameBack = h.cameBack || attempt.Mode == v1alpha1.ModeCRR && s.cameBack(*attempt, sidecar.Container)
		h.failures = append(h.failures, Failure{
			Container: sidecar.Container, Mode: attempt.Mode, Attempt: attempt.Number, Message: message,
		})
		if h.retryAt.Before(deadline) {
			h.retryAt = deadline
		}
	}
	h.retryAt = h.retryAt.Add(backoff(crrs))
	return h
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
	switch {
	case !s.now.Before(deadline):
		return fmt.Sprintf("container %s had not ended %s after mode %s was used%s%s",
			sidecar.Container, deadline.Sub(attempt.Started), attempt.Mode, quoted(attempt.Message), s.waitingFor(sidecar.Container))
	case attempt.Mode == v1alpha1.ModePodPhase && !HasTerminalPhase(s.Pod) && attempt.Number >= maxPhaseWrites-1:
		return fmt.Sprintf("the phase was written %d times and reverted to %s each time", maxPhaseWrites, s.Pod.Status.Phase)
	case attempt.Mode == v1alpha1.ModeCRR && s.cameBack(attempt, sidecar.Container):
		return fmt.Sprintf("container %s was stopped, and the kubelet restarted it", sidecar.Container)
	case !attempt.Finished.IsZero() && !s.now.Before(attempt.Finished.Add(statusLag)):
		return fmt.Sprintf("mode %s finished without ending container %s%s", attempt.Mode, sidecar.Container, quoted(attempt.Message))
	}
	return ""
}

// waitingFor returns what keeps the container from running, such as an image that cannot be pulled, or "".
func (s *situation) waitingFor(container string) string {
	status := statusOf(s.Pod, container)
	if status == nil || status.State.Waiting == nil || status.State.Waiting.Reason == "" {
		return ""
	}
	return fmt.Sprintf("; it is waiting: %s", status.State.Waiting.Reason)
}

// cameBack reports whether the container was restarted after the attempt began.
func (s *situation) cameBack(attempt Attempt, container string) bool {
	status := statusOf(s.Pod, container)
	return status != nil && status.RestartCount > attempt.RestartCounts[container]
}

// phaseCameBack reports whether the written phase was reverted and may be written again. A sidecar that is now declared with mode
// Image and no fallback permits no phase.
func (s *situation) phaseCameBack(h history, sidecar resolve.Sidecar) bool {
	onlyImage := sidecar.Mode == v1alpha1.ModeImage && sidecar.Fallback == v1alpha1.FallbackDisabled
	return !onlyImage && !HasTerminalPhase(s.Pod) && h.hasLive(v1alpha1.ModePodPhase) &&
		s.whyNotPodPhase(sidecar) == (unusable{}) && !isStarting(statusOf(s.Pod, sidecar.Container))
}

// PhaseReverted returns the number of the newest attempt whose phase the pod no longer has, or -1. A kubelet that has not seen
// the phase yet reverts it, unless the phase guard denies that.
func PhaseReverted(pod *corev1.Pod, attempts []Attempt) int {
	number := -1
	if HasTerminalPhase(pod) {
		return number
	}
	for _, attempt := range attempts {
		if attempt.Mode == v1alpha1.ModePodPhase {
			number = max(number, attempt.Number)
		}
	}
	return number
}

// stabilizationWindow is at least UnguardedWindow for a pod whose phase was reverted: the guard does not protect it.
func (s *situation) stabilizationWindow() time.Duration {
	if PhaseReverted(s.Pod, s.Attempts) >= 0 {
		return max(s.StabilizationWindow, UnguardedWindow)
	}
	return s.StabilizationWindow
}

// hasLive reports whether an attempt of the mode is live.
func (h history) hasLive(mode v1alpha1.Mode) bool {
	return slices.ContainsFunc(h.live, func(a *Attempt) bool { return a.Mode == mode })
}

// nextNumber returns the number of the mode's next attempt. Obsolete CRRs do not count: the next CRR supersedes them and
// reuses their number, and with it their name. So a stale cache cannot lead to a second CRR.
func (s *situation) nextNumber(mode v1alpha1.Mode) int {
	next := 0
	for _, attempt := range s.Attempts {
		if attempt.Mode == mode && !s.obsolete(attempt) {
			next = max(next, attempt.Number+1)
		}
	}
	return next
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

// backoff returns the wait before the next CRR after the given number of CRRs.
func backoff(crrs int) time.Duration {
	wait := retryInterval
	for range crrs - 1 {
		wait = min(2*wait, maxRetryInterval)
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

// quoted returns the mechanism's own message in parentheses, cut to a bound, or "".
func quoted(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%.500q)", message)
}
