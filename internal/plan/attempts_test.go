// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func inProgress(requeue time.Duration) brief {
	return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: requeue}
}

// TestAttempts covers the decision after an attempt on one sidecar.
func TestAttempts(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	cameBack := func() *corev1.Pod { return newPod(onFailure, exited("main", 0), running("proxy").restarted(1)) }
	hourOfGrace := func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 3600 }
	one := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("proxy", changes...))
	}
	terminal := phase(corev1.PodSucceeded)

	runScenarios(t, map[string]scenario{
		"a CRR in progress is given until its deadline": {
			snapshot: observed(pod(), one(respect), attempted(crrAttempt(0, "proxy"))),
			after:    59 * time.Second,
			want:     inProgress(time.Second),
		},
		"a CRR fails at its deadline": {
			snapshot: observed(pod(), one(respect), attempted(crrAttempt(0, "proxy"))),
			after:    minute,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a CRR of three containers has three grace periods": {
			snapshot: observed(pod(), one(respect), attempted(crrAttempt(0, "proxy", "a", "b"))),
			after:    minute,
			want:     inProgress(minute),
		},
		"a swap of three containers has three grace periods": {
			snapshot: observed(pod(), one(respect), attempted(swap("proxy", "a", "b"))),
			after:    minute,
			want:     inProgress(minute),
		},
		"a CRR fails as soon as the sidecar restarts": {
			snapshot: observed(cameBack(), one(respect), attempted(crrAttempt(0, "proxy"))),
			after:    2 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a finished CRR waits for the pod's status": {
			snapshot: observed(pod(), one(respect), attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, ""))),
			after:    12 * time.Second,
			want:     inProgress(3 * time.Second),
		},
		"a finished CRR without effect has failed": {
			snapshot: observed(pod(), one(respect), attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, ""))),
			after:    15 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a CRR that Kruise gave up on fails before a long deadline": {
			snapshot: observed(pod(), one(respect), hourOfGrace, attempted(finished(crrAttempt(0, "proxy"), minute, "daemon has not responded"))),
			after:    minute,
			want:     inProgress(5 * time.Second),
		},
		"a swap waits for the new container": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143)), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     inProgress(59 * time.Second),
		},
		"a swap after a CRR waits for the new container": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143)), one(), attempted(crrAttempt(0, "proxy"), swap("proxy"))),
			after:    time.Second,
			want:     inProgress(59 * time.Second),
		},
		"a swap is complete when the new container has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0).restarted(1)), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a sidecar that exited before its swap has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), one(), attempted(at(swap("proxy"), time.Second))),
			after:    2 * time.Second,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a swap waits for the new container although the node's clock is behind": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143).endedAt(done.Add(-50*minute))), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     inProgress(59 * time.Second),
		},
		"a sidecar that exited long before its swap has ended at the deadline": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143).endedAt(done.Add(-50*minute))), one(), attempted(swap("proxy"))),
			after:    minute,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a sidecar that exited at an unknown time has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0).endedAt(time.Time{})), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a swap to an unpullable image falls back to the phase": {
			snapshot: observed(newPod(onFailure, exited("main", 0), crashLooping("proxy").restarted(0)), one(), withoutKruise, attempted(swap("proxy"))),
			after:    minute,
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a written phase is given until its deadline": {
			snapshot: observed(pod(), one(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"an overwritten phase is rewritten": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     terminating("PodPhase#1=Succeeded [proxy] within 1m0s"),
		},
		"an overwritten phase waits for a stable pod": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(0, podPhase)), unchangedSince(done.Add(10*time.Second))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonStabilizing, Requeue: window},
		},
		"an overwritten phase waits for a sidecar being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), one(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"an overwritten phase stays if exit codes are now respected": {
			snapshot: observed(pod(), one(respect), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"an overwritten phase stays if the mode is now disabled": {
			snapshot: observed(pod(), one(), withoutPodPhase, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"a phase overwritten three times has failed": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(2, podPhase))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a phase that ended nothing falls back to a CRR": {
			snapshot: observed(pod(), one(mode(podPhase)), terminal, phaseKnown, attempted(phaseWrite(0, podPhase))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"no image swap in a pod with a terminal phase": {
			snapshot: observed(pod(), one(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"no CRR while the phase may still end the sidecar": {
			snapshot: observed(pod(), one(), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			after:    59 * time.Second,
			want:     inProgress(time.Second),
		},
		"a CRR follows a phase that did not end the sidecar": {
			snapshot: observed(pod(), one(), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"a CRR follows its phase without fallback, too": {
			snapshot: observed(pod(), one(mode(crr), noFallback), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"no CRR before the kubelet has seen the phase": {
			snapshot: observed(pod(), one(), terminal, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     inProgress(minute),
		},
		"the wait for the kubelet starts at the newest phase write": {
			snapshot: observed(pod(), one(), terminal, attempted(phaseWrite(0, crr), at(phaseWrite(1, crr), 30*time.Second))),
			after:    90 * time.Second,
			want:     inProgress(minute),
		},
		"Ready with another reason does not show a known phase": {
			snapshot: observed(pod(), one(), terminal, phaseKnown, attempted(phaseWrite(0, crr)), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions[0].Reason = "ContainersNotReady"
			}),
			after: minute,
			want:  inProgress(minute),
		},
		"a CRR follows after two minutes without a kubelet response": {
			snapshot: observed(pod(), one(), terminal, attempted(phaseWrite(0, crr))),
			after:    2 * minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times: the image goes before a CRR": {
			snapshot: observed(pod(), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"deadline passed during a rewrite: the image is swapped": {
			snapshot: observed(pod(), one(mode(crr)), unchangedSince(done.Add(minute)), attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times, Respect: a CRR": {
			snapshot: observed(pod(), one(respect), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times, failed main: the image": {
			snapshot: observed(newPod(never, exited("main", 3), running("proxy")), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times, OnFailure: a CRR": {
			snapshot: observed(newPod(onFailure, exited("main", 0), running("proxy")), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times, image failed: a CRR": {
			snapshot: observed(pod(), one(), attempted(phaseWrite(2, crr), swap("proxy"))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"phase overwritten three times, no fallback: a CRR": {
			snapshot: observed(pod(), one(mode(crr), noFallback), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Respect: a CRR does not wait for the kubelet": {
			snapshot: observed(pod(), one(respect), terminal, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"no fallback: a failed attempt leaves the pod stuck": {
			snapshot: observed(pod(), one(mode(image), noFallback), attempted(swap("proxy"))),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"every mode failed: stuck, and a CRR retry is due": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			after:    minute,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 30 * time.Second},
		},
		"a failed CRR is retried after 30 s": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			after:    90 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Actions: []string{"CRR#1 [proxy] within 1m0s"}},
		},
		"the retry interval doubles": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), at(crrAttempt(1, "proxy"), 90*time.Second))),
			after:    150 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: minute},
		},
		"the retry interval is capped": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), crrAttempt(1, "proxy"), crrAttempt(2, "proxy"),
				crrAttempt(3, "proxy"), crrAttempt(4, "proxy"), crrAttempt(5, "proxy"), crrAttempt(6, "proxy"), crrAttempt(7, "proxy"))),
			after: minute,
			want:  brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 10 * minute},
		},
		"a stuck pod waits for its CRR retry": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), at(crrAttempt(1, "proxy"), 90*time.Second))),
			after:    100 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 50 * time.Second},
		},
		"a CRR that restarted the sidecar is not retried": {
			snapshot: observed(cameBack(), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			after:    time.Hour,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"a sidecar that ends late clears a stuck pod": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 137)), one(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			after:    time.Hour,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"installing Kruise clears a pod without a usable mode": {
			snapshot: observed(pod(), one(noImage, respect)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"an attempt on another container does not count": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy"), exited("logs", 0).restarted(1)),
				sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy", mode(image))), attempted(swap("logs"))),
			after: time.Second,
			want:  terminating("Image#1 [proxy] within 1m0s"),
		},
	})
}

func TestStabilization(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	one := sidecarsOf(sidecar("proxy"))
	stabilizing := func(requeue time.Duration) brief {
		return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonStabilizing, Requeue: requeue}
	}
	written := terminating("PodPhase#0=Succeeded [proxy] within 1m0s")

	runScenarios(t, map[string]scenario{
		"the phase waits for a stable pod": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Second))),
			after:    2 * time.Second,
			want:     stabilizing(500 * time.Millisecond),
		},
		"the phase is written once the pod is stable": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Second))),
			after:    time.Second + window,
			want:     written,
		},
		"the phase of mode CRR waits for a stable pod": {
			snapshot: observed(pod(), one, unchangedSince(done)),
			want:     stabilizing(window),
		},
		"with the phase guard the phase is written at once": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done), withoutWindow),
			want:     written,
		},
		"with the phase guard a reverted phase waits for a stable pod": {
			snapshot: observed(pod(), one, withoutKruise, attempted(phaseWrite(0, podPhase)), unchangedSince(done.Add(10*time.Second)), withoutWindow),
			after:    10 * time.Second,
			want:     stabilizing(plan.UnguardedWindow),
		},
		"a CRR without a phase needs no stable pod": {
			snapshot: observed(pod(), sidecarsOf(sidecar("proxy", respect)), unchangedSince(done)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a swap needs no stable pod": {
			snapshot: observed(pod(), sidecarsOf(sidecar("proxy", mode(image))), unchangedSince(done)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a pod that never stabilizes: not before 20 windows": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done.Add(29*time.Second))),
			after:    29*time.Second + 100*time.Millisecond,
			want:     stabilizing(900 * time.Millisecond),
		},
		"a pod that never stabilizes: after 20 windows": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done.Add(30*time.Second))),
			after:    30 * time.Second,
			want:     written,
		},
		"a drain extends the limit": {
			snapshot: observed(pod(), sidecarsOf(sidecar("proxy", drain(minute))), withoutKruise, unchangedSince(done.Add(minute))),
			after:    minute,
			want:     stabilizing(window),
		},
		"a failed attempt extends the limit": {
			snapshot: observed(pod(), sidecarsOf(sidecar("proxy", mode(image))), withoutKruise, attempted(swap("proxy")), unchangedSince(done.Add(minute))),
			after:    minute,
			want:     stabilizing(window),
		},
		"a container exit extends the limit despite the node's clock": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy"), exited("logs", 0)),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy")), withoutKruise, unchangedSince(done.Add(time.Hour)), containersUnchangedSince(done.Add(time.Hour))),
			after: time.Hour,
			want:  stabilizing(window),
		},
		"20 windows although the node's clock is ahead": {
			snapshot: observed(newPod(never, exited("main", 0).endedAt(done.Add(50*minute)), running("proxy")), one, withoutKruise,
				unchangedSince(done.Add(30*time.Second)), drainsSince(done)),
			after: 30 * time.Second,
			want:  written,
		},
		"20 windows are measured by the operator's clock": {
			snapshot: observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Hour)), containersUnchangedSince(done.Add(time.Hour-20*window))),
			after:    time.Hour,
			want:     written,
		},
	})
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		want     []plan.Failure
	}{
		"each failed attempt is named with its container": {
			snapshot: observed(newPod(never, exited("main", 0), running("logs"), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(0, "logs", "proxy"), swap("proxy"))),
			want: []plan.Failure{
				{Container: "logs", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: image, Attempt: 0},
			},
		},
		"a failure after a live attempt": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")),
				sidecarsOf(sidecar("proxy", respect)), attempted(at(swap("proxy"), time.Hour), crrAttempt(0, "proxy"))),
			want: []plan.Failure{{Container: "proxy", Mode: crr, Attempt: 0}},
		},
		"a container that has ended has no failures": {
			snapshot: observed(newPod(never, exited("main", 0), exited("logs", 0), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(0, "logs"))),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Next(test.snapshot, done.Add(time.Hour)).Failures
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(plan.Failure{}, "Message")); diff != "" {
				t.Errorf("Failures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTried(t *testing.T) {
	tests := map[string]struct {
		attempts []plan.Attempt
		want     v1alpha1.Mode
	}{
		"no attempt": {nil, ""},
		"a phase written for a CRR counts as CRR": {[]plan.Attempt{phaseWrite(0, crr)}, crr},
		"the newest attempt counts":               {[]plan.Attempt{at(swap("proxy"), minute), crrAttempt(0, "proxy")}, image},
		"the newest attempt is the last":          {[]plan.Attempt{crrAttempt(0, "proxy"), at(swap("proxy"), minute)}, image},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := observed(newPod(never, exited("main", 0), running("proxy")), sidecarsOf(sidecar("proxy")), attempted(test.attempts...))
			if diff := cmp.Diff(test.want, plan.Next(s, done).Tried); diff != "" {
				t.Errorf("Tried (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStuckSidecarNamesWaitingReason(t *testing.T) {
	pod := newPod(never, exited("main", 0), unpullable("proxy").restarted(1))
	s := observed(pod, []resolve.Sidecar{sidecar("proxy", mode(v1alpha1.ModeImage), noFallback)})
	s.Attempts = []plan.Attempt{{
		Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, Started: done, RestartCounts: map[string]int32{"proxy": 0},
	}}
	decision := plan.Next(s, done.Add(time.Hour))
	if decision.Reason != v1alpha1.ReasonStuck || !strings.Contains(decision.Message, "it is waiting: ImagePullBackOff") {
		t.Errorf("got %s: %s", decision.Reason, decision.Message)
	}
}
