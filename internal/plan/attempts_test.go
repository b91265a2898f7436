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
)

// TestAttempts covers the decision after an attempt on one sidecar.
func TestAttempts(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	cameBack := func() *corev1.Pod { return finishedMain(onFailure, running("proxy").restarted(1)) }
	hourOfGrace := func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 3600 }
	terminal := phase(corev1.PodSucceeded)

	runScenarios(t, map[string]scenario{
		"a CRR in progress is given until its deadline": {
			observed(pod(), oneProxy(respect), attempted(crrAttempt(0, "proxy"))),
			59 * time.Second, inProgress(time.Second),
		},
		"a CRR fails at its deadline": {observed(pod(), oneProxy(respect), attempted(crrAttempt(0, "proxy"))), minute, fallingBack(swapOfProxy)},
		"a CRR of three containers has three grace periods": {
			observed(pod(), oneProxy(respect), attempted(crrAttempt(0, "proxy", "a", "b"))),
			minute, inProgress(minute),
		},
		"a swap of three containers has three grace periods": {observed(pod(), oneProxy(respect), attempted(swap("proxy", "a", "b"))), minute, inProgress(minute)},
		"a CRR fails as soon as the sidecar restarts": {
			observed(cameBack(), oneProxy(respect), attempted(crrAttempt(0, "proxy"))),
			2 * time.Second, fallingBack(swapOfProxy),
		},
		"a finished CRR waits for the pod's status": {
			observed(pod(), oneProxy(respect), attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, ""))),
			12 * time.Second, inProgress(3 * time.Second),
		},
		"a finished CRR without effect has failed": {
			observed(pod(), oneProxy(respect), attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, ""))),
			15 * time.Second, fallingBack(swapOfProxy),
		},
		"a CRR that Kruise gave up on fails before a long deadline": {
			observed(pod(), oneProxy(respect), hourOfGrace, attempted(finished(crrAttempt(0, "proxy"), minute, "daemon has not responded"))),
			minute, inProgress(5 * time.Second),
		},
		"a swap waits for the new container": {
			observed(finishedMain(never, exited("proxy", 143)), oneProxy(), attempted(swap("proxy"))),
			time.Second, inProgress(59 * time.Second),
		},
		"a swap after a CRR waits for the new container": {
			observed(finishedMain(never, exited("proxy", 143)), oneProxy(), attempted(crrAttempt(0, "proxy"), swap("proxy"))),
			time.Second, inProgress(59 * time.Second),
		},
		"a swap is complete when the new container has ended": {
			observed(finishedMain(never, exited("proxy", 0).restarted(1)), oneProxy(), attempted(swap("proxy"))),
			time.Second, terminated(),
		},
		"a sidecar that exited before its swap has ended": {
			observed(finishedMain(never, exited("proxy", 0)), oneProxy(), attempted(at(swap("proxy"), time.Second))),
			2 * time.Second, terminated(),
		},
		"a swap waits for the new container although the node's clock is behind": {
			observed(finishedMain(never, exited("proxy", 143).endedAt(done.Add(-50*minute))), oneProxy(), attempted(swap("proxy"))),
			time.Second, inProgress(59 * time.Second),
		},
		"a sidecar that exited long before its swap has ended at the deadline": {
			observed(finishedMain(never, exited("proxy", 143).endedAt(done.Add(-50*minute))), oneProxy(), attempted(swap("proxy"))),
			minute, terminated(),
		},
		"a sidecar that exited at an unknown time has ended": {
			observed(finishedMain(never, exited("proxy", 0).endedAt(time.Time{})), oneProxy(), attempted(swap("proxy"))),
			time.Second, terminated(),
		},
		"a swap to an unpullable image falls back to the phase": {
			observed(finishedMain(onFailure, crashLooping("proxy").restarted(0)), oneProxy(), withoutKruise, attempted(swap("proxy"))),
			minute, fallingBack(phaseOfProxy),
		},
		"a written phase is given until its deadline": {
			observed(pod(), oneProxy(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"an overwritten phase is rewritten": {
			observed(pod(), oneProxy(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, terminating("PodPhase#1=Succeeded [proxy] within 1m0s"),
		},
		"an overwritten phase waits for a stable pod": {
			observed(pod(), oneProxy(), withoutKruise, attempted(phaseWrite(0, podPhase)), unchangedSince(done.Add(10*time.Second))),
			10 * time.Second, pending(v1alpha1.ReasonStabilizing, window),
		},
		"an overwritten phase waits for a sidecar being created": {
			observed(finishedMain(never, creating("proxy")), oneProxy(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"an overwritten phase stays if exit codes are now respected": {
			observed(pod(), oneProxy(respect), withoutKruise, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"an overwritten phase stays if the mode is now disabled": {
			observed(pod(), oneProxy(), withoutPodPhase, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"a phase overwritten three times has failed": {
			observed(pod(), oneProxy(), withoutKruise, attempted(phaseWrite(2, podPhase))),
			10 * time.Second, fallingBack(swapOfProxy),
		},
		"a phase that ended nothing falls back to a CRR": {
			observed(pod(), oneProxy(mode(podPhase)), terminal, phaseKnown, attempted(phaseWrite(0, podPhase))),
			minute, fallingBack(crrOfProxy),
		},
		"no image swap in a pod with a terminal phase": {
			observed(pod(), oneProxy(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			minute, stuck(v1alpha1.ReasonStuck),
		},
		"no CRR while the phase may still end the sidecar": {
			observed(pod(), oneProxy(), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			59 * time.Second, inProgress(time.Second),
		},
		"a CRR follows a phase that did not end the sidecar": {
			observed(pod(), oneProxy(), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			minute, fallingBack(crrOfProxy),
		},
		"a CRR follows its phase without fallback, too": {
			observed(pod(), oneProxy(mode(crr), noFallback), terminal, phaseKnown, attempted(phaseWrite(0, crr))),
			minute, fallingBack(crrOfProxy),
		},
		"no CRR before the kubelet has seen the phase": {observed(pod(), oneProxy(), terminal, attempted(phaseWrite(0, crr))), minute, inProgress(minute)},
		"the wait for the kubelet starts at the newest phase write": {
			observed(pod(), oneProxy(), terminal, attempted(phaseWrite(0, crr), at(phaseWrite(1, crr), 30*time.Second))),
			90 * time.Second, inProgress(minute),
		},
		"Ready with another reason does not show a known phase": {
			observed(pod(), oneProxy(), terminal, phaseKnown, attempted(phaseWrite(0, crr)), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions[0].Reason = "ContainersNotReady"
			}),
			minute, inProgress(minute),
		},
		"a CRR follows after two minutes without a kubelet response": {
			observed(pod(), oneProxy(), terminal, attempted(phaseWrite(0, crr))),
			2 * minute, fallingBack(crrOfProxy),
		},
		"phase overwritten three times: the image goes before a CRR": {
			observed(pod(), oneProxy(), attempted(phaseWrite(2, crr))),
			10 * time.Second, fallingBack(swapOfProxy),
		},
		"deadline passed during a rewrite: the image is swapped": {
			observed(pod(), oneProxy(mode(crr)), unchangedSince(done.Add(minute)), attempted(phaseWrite(0, crr))),
			minute, fallingBack(swapOfProxy),
		},
		"phase overwritten three times, Respect: a CRR": {observed(pod(), oneProxy(respect), attempted(phaseWrite(2, crr))), 10 * time.Second, fallingBack(crrOfProxy)},
		"phase overwritten three times, failed main: the image": {
			observed(newPod(never, exited("main", 3), running("proxy")), oneProxy(), attempted(phaseWrite(2, crr))),
			10 * time.Second, fallingBack(swapOfProxy),
		},
		"phase overwritten three times, OnFailure: a CRR": {
			observed(finishedMain(onFailure), oneProxy(), attempted(phaseWrite(2, crr))),
			10 * time.Second, fallingBack(crrOfProxy),
		},
		"phase overwritten three times, image failed: a CRR": {
			observed(pod(), oneProxy(), attempted(phaseWrite(2, crr), swap("proxy"))),
			minute, fallingBack(crrOfProxy),
		},
		"phase overwritten three times, no fallback: a CRR": {
			observed(pod(), oneProxy(mode(crr), noFallback), attempted(phaseWrite(2, crr))),
			10 * time.Second, fallingBack(crrOfProxy),
		},
		"Respect: a CRR does not wait for the kubelet": {observed(pod(), oneProxy(respect), terminal, attempted(phaseWrite(0, crr))), minute, fallingBack(crrOfProxy)},
		"no fallback: a failed attempt leaves the pod stuck": {
			observed(pod(), oneProxy(mode(image), noFallback), attempted(swap("proxy"))),
			minute, stuck(v1alpha1.ReasonStuck),
		},
		"every mode failed: stuck, and a CRR retry is due": {
			observed(pod(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			minute, requeued(stuck(v1alpha1.ReasonStuck), 30*time.Second),
		},
		"a failed CRR is retried after 30 s": {
			observed(pod(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			90 * time.Second, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Actions: []string{"CRR#1 [proxy] within 1m0s"}},
		},
		"the retry interval doubles": {
			observed(pod(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), at(crrAttempt(1, "proxy"), 90*time.Second))),
			150 * time.Second, requeued(stuck(v1alpha1.ReasonStuck), minute),
		},
		"the retry interval is capped": {
			observed(pod(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), crrAttempt(1, "proxy"), crrAttempt(2, "proxy"),
				crrAttempt(3, "proxy"), crrAttempt(4, "proxy"), crrAttempt(5, "proxy"), crrAttempt(6, "proxy"), crrAttempt(7, "proxy"))),
			minute, requeued(stuck(v1alpha1.ReasonStuck), 10*minute),
		},
		"a stuck pod waits for its CRR retry": {
			observed(pod(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"), at(crrAttempt(1, "proxy"), 90*time.Second))),
			100 * time.Second, requeued(stuck(v1alpha1.ReasonStuck), 50*time.Second),
		},
		"a CRR that restarted the sidecar is not retried": {
			observed(cameBack(), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			time.Hour, stuck(v1alpha1.ReasonStuck),
		},
		"a sidecar that ends late clears a stuck pod": {
			observed(finishedMain(never, exited("proxy", 137)), oneProxy(mode(crr), noFallback, respect), attempted(crrAttempt(0, "proxy"))),
			time.Hour, terminated(),
		},
		"installing Kruise clears a pod without a usable mode": {observed(pod(), oneProxy(noImage, respect)), 0, terminating(crrOfProxy)},
		"an attempt on another container does not count": {
			observed(finishedMain(never, running("proxy"), exited("logs", 0).restarted(1)),
				sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy", mode(image))), attempted(swap("logs"))),
			time.Second, terminating("Image#1 [proxy] within 1m0s"),
		},
	})
}

func TestStabilization(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	one := oneProxy()

	runScenarios(t, map[string]scenario{
		"the phase waits for a stable pod": {
			observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Second))),
			2 * time.Second, pending(v1alpha1.ReasonStabilizing, 500*time.Millisecond),
		},
		"the phase is written once the pod is stable":       {observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Second))), time.Second + window, terminating(phaseOfProxy)},
		"the phase of mode CRR waits for a stable pod":      {observed(pod(), one, unchangedSince(done)), 0, pending(v1alpha1.ReasonStabilizing, window)},
		"with the phase guard the phase is written at once": {observed(pod(), one, withoutKruise, unchangedSince(done), withoutWindow), 0, terminating(phaseOfProxy)},
		"with the phase guard a reverted phase waits for a stable pod": {
			observed(pod(), one, withoutKruise, attempted(phaseWrite(0, podPhase)), unchangedSince(done.Add(10*time.Second)), withoutWindow),
			10 * time.Second, pending(v1alpha1.ReasonStabilizing, plan.UnguardedWindow),
		},
		"a CRR without a phase needs no stable pod": {observed(pod(), oneProxy(respect), unchangedSince(done)), 0, terminating(crrOfProxy)},
		"a swap needs no stable pod":                {observed(pod(), oneProxy(mode(image)), unchangedSince(done)), 0, terminating(swapOfProxy)},
		"a pod that never stabilizes: not before 20 windows": {
			observed(pod(), one, withoutKruise, unchangedSince(done.Add(29*time.Second))),
			29*time.Second + 100*time.Millisecond, pending(v1alpha1.ReasonStabilizing, 900*time.Millisecond),
		},
		"a pod that never stabilizes: after 20 windows": {observed(pod(), one, withoutKruise, unchangedSince(done.Add(30*time.Second))), 30 * time.Second, terminating(phaseOfProxy)},
		"a drain extends the limit": {
			observed(pod(), oneProxy(drain(minute)), withoutKruise, unchangedSince(done.Add(minute))),
			minute, pending(v1alpha1.ReasonStabilizing, window),
		},
		"a failed attempt extends the limit": {
			observed(pod(), oneProxy(mode(image)), withoutKruise, attempted(swap("proxy")), unchangedSince(done.Add(minute))),
			minute, pending(v1alpha1.ReasonStabilizing, window),
		},
		"a container exit extends the limit despite the node's clock": {
			observed(finishedMain(never, running("proxy"), exited("logs", 0)),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy")), withoutKruise, unchangedSince(done.Add(time.Hour)), containersUnchangedSince(done.Add(time.Hour))),
			time.Hour, pending(v1alpha1.ReasonStabilizing, window),
		},
		"20 windows although the node's clock is ahead": {
			observed(newPod(never, exited("main", 0).endedAt(done.Add(50*minute)), running("proxy")), one, withoutKruise,
				unchangedSince(done.Add(30*time.Second)), drainsSince(done)),
			30 * time.Second, terminating(phaseOfProxy),
		},
		"20 windows are measured by the operator's clock": {
			observed(pod(), one, withoutKruise, unchangedSince(done.Add(time.Hour)), containersUnchangedSince(done.Add(time.Hour-20*window))),
			time.Hour, terminating(phaseOfProxy),
		},
	})
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		want     []plan.Failure
	}{
		"each failed attempt is named with its container": {
			observed(finishedMain(never, running("logs"), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(0, "logs", "proxy"), swap("proxy"))),
			[]plan.Failure{{Container: "logs", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: image, Attempt: 0}},
		},
		"a failure after a live attempt": {
			observed(finishedMain(never), oneProxy(respect), attempted(at(swap("proxy"), time.Hour), crrAttempt(0, "proxy"))),
			[]plan.Failure{{Container: "proxy", Mode: crr, Attempt: 0}},
		},
		"a container that has ended has no failures": {
			observed(finishedMain(never, exited("logs", 0), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(0, "logs"))),
			nil,
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
			s := observed(finishedMain(never), oneProxy(), attempted(test.attempts...))
			if diff := cmp.Diff(test.want, plan.Next(s, done).Tried); diff != "" {
				t.Errorf("Tried (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStuckSidecarNamesWaitingReason(t *testing.T) {
	pod := finishedMain(never, unpullable("proxy").restarted(1))
	s := observed(pod, oneProxy(mode(image), noFallback))
	s.Attempts = []plan.Attempt{{
		Mode: image, For: image, Started: done, RestartCounts: map[string]int32{"proxy": 0},
	}}
	decision := plan.Next(s, done.Add(time.Hour))
	if decision.Reason != v1alpha1.ReasonStuck || !strings.Contains(decision.Message, "it is waiting: ImagePullBackOff") {
		t.Errorf("got %s: %s", decision.Reason, decision.Message)
	}
}
