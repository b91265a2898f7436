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

// TestAttempts covers what follows an attempt on one sidecar.
func TestAttempts(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	cameBack := func() *corev1.Pod { return newPod(onFailure, exited("main", 0), running("proxy").restarted(1)) }
	hourOfGrace := func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 3600 }
	one := func(changes ...func(*resolve.Target)) []resolve.Target { return targets(sidecar("proxy", changes...)) }
	terminal := phase(corev1.PodSucceeded)

	runScenarios(t, map[string]scenario{
		"a request is waited for until its deadline": {
			snapshot: observed(pod(), one(respect), attempted(request(0, "proxy"))),
			after:    59 * time.Second,
			want:     inProgress(time.Second),
		},
		"a request that has not ended the sidecar at its deadline has failed": {
			snapshot: observed(pod(), one(respect), attempted(request(0, "proxy"))),
			after:    minute,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a request of three containers has three grace periods": {
			snapshot: observed(pod(), one(respect), attempted(request(0, "proxy", "a", "b"))),
			after:    minute,
			want:     inProgress(minute),
		},
		"a swap of three containers has three grace periods": {
			snapshot: observed(pod(), one(respect), attempted(swap("proxy", "a", "b"))),
			after:    minute,
			want:     inProgress(minute),
		},
		"a request after which the sidecar came back has failed at once": {
			snapshot: observed(cameBack(), one(respect), attempted(request(0, "proxy"))),
			after:    2 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a request that Kruise has finished is given a moment for the pod's status to follow": {
			snapshot: observed(pod(), one(respect), attempted(finished(request(0, "proxy"), 10*time.Second, ""))),
			after:    12 * time.Second,
			want:     inProgress(3 * time.Second),
		},
		"a request that Kruise has finished without effect has failed": {
			snapshot: observed(pod(), one(respect), attempted(finished(request(0, "proxy"), 10*time.Second, ""))),
			after:    15 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a silent daemon is found out when Kruise gives up, not at the end of an hour of grace": {
			snapshot: observed(pod(), one(respect), hourOfGrace, attempted(finished(request(0, "proxy"), minute, "daemon has not responded"))),
			after:    minute,
			want:     inProgress(5 * time.Second),
		},
		"a swap waits for the new container after the end of the old one": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143)), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     inProgress(59 * time.Second),
		},
		"a swap is through when the new container has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0).restarted(1)), one(), attempted(swap("proxy"))),
			after:    time.Second,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a sidecar that had ended before the swap has ended": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), one(), attempted(at(swap("proxy"), time.Second))),
			after:    2 * time.Second,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a swap whose image cannot be pulled is followed by the phase": {
			snapshot: observed(newPod(onFailure, exited("main", 0), crashLooping("proxy").restarted(0)), one(), withoutKruise, attempted(swap("proxy"))),
			after:    minute,
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a written phase is waited for until its deadline": {
			snapshot: observed(pod(), one(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"a phase that came back is written again": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     terminating("PodPhase#1=Succeeded [proxy] within 1m0s"),
		},
		"a phase that came back a moment ago is not written again yet": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(0, podPhase)), quietFrom(done.Add(10*time.Second))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSettling, Requeue: settle},
		},
		"a phase that came back is not written again while the sidecar is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), one(), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"a phase that came back is not written again once the exit code is to be respected": {
			snapshot: observed(pod(), one(respect), withoutKruise, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"a phase that came back is not written again where the operator may not": {
			snapshot: observed(pod(), one(), withoutPodPhase, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     inProgress(50 * time.Second),
		},
		"a phase that came back three times has failed": {
			snapshot: observed(pod(), one(), withoutKruise, attempted(phaseWrite(2, podPhase))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a phase after which the sidecar still runs at the deadline is followed by a request": {
			snapshot: observed(pod(), one(mode(podPhase)), terminal, knowingKubelet, attempted(phaseWrite(0, podPhase))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"an image is not swapped in a pod with a terminal phase": {
			snapshot: observed(pod(), one(), withoutKruise, terminal, attempted(phaseWrite(0, podPhase))),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"Kruise is not asked while the phase may end the sidecar": {
			snapshot: observed(pod(), one(), terminal, knowingKubelet, attempted(phaseWrite(0, crr))),
			after:    59 * time.Second,
			want:     inProgress(time.Second),
		},
		"Kruise is asked when the phase has not ended the sidecar": {
			snapshot: observed(pod(), one(), terminal, knowingKubelet, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Kruise is asked without fallback as well, for both are of mode CRR": {
			snapshot: observed(pod(), one(mode(crr), noFallback), terminal, knowingKubelet, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Kruise is not asked while the kubelet may not know of the phase, for the exit code would count": {
			snapshot: observed(pod(), one(), terminal, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     inProgress(minute),
		},
		"Kruise is asked where the kubelet does not say within two minutes that it knows of the phase": {
			snapshot: observed(pod(), one(), terminal, attempted(phaseWrite(0, crr))),
			after:    2 * minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"the image is swapped at once where the phase came back three times, for the exit code would count after a request": {
			snapshot: observed(pod(), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"the image is swapped where the deadline passed while the phase that came back was to be written again": {
			snapshot: observed(pod(), one(mode(crr)), quietFrom(done.Add(minute)), attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"Kruise is asked where the phase came back three times and the exit code is to be respected": {
			snapshot: observed(pod(), one(respect), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"the image is swapped where the phase came back three times and a main container has failed": {
			snapshot: observed(newPod(never, exited("main", 3), running("proxy")), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"Kruise is asked where the phase came back three times and an image swapped would cost a restart": {
			snapshot: observed(newPod(onFailure, exited("main", 0), running("proxy")), one(), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Kruise is asked where the phase came back three times and the image has failed": {
			snapshot: observed(pod(), one(), attempted(phaseWrite(2, crr), swap("proxy"))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Kruise is asked where the phase came back three times and no other mode may be used": {
			snapshot: observed(pod(), one(mode(crr), noFallback), attempted(phaseWrite(2, crr))),
			after:    10 * time.Second,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"a request need not wait for a kubelet that knows of the phase once the exit code is to be respected": {
			snapshot: observed(pod(), one(respect), terminal, attempted(phaseWrite(0, crr))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"without fallback nothing follows a failed attempt": {
			snapshot: observed(pod(), one(mode(image), noFallback), attempted(swap("proxy"))),
			after:    minute,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"a pod is stuck when every mode has failed, and a request is to be repeated": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"))),
			after:    minute,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 30 * time.Second},
		},
		"a request is repeated half a minute after the first has failed": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"))),
			after:    90 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Actions: []string{"CRR#1 [proxy] within 1m0s"}},
		},
		"the wait doubles": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"), at(request(1, "proxy"), 90*time.Second))),
			after:    150 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: minute},
		},
		"the wait has a bound": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"), request(1, "proxy"), request(2, "proxy"),
				request(3, "proxy"), request(4, "proxy"), request(5, "proxy"), request(6, "proxy"), request(7, "proxy"))),
			after: minute,
			want:  brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 10 * minute},
		},
		"a stuck pod waits for its repeated request": {
			snapshot: observed(pod(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"), at(request(1, "proxy"), 90*time.Second))),
			after:    100 * time.Second,
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 50 * time.Second},
		},
		"a request after which the sidecar came back is not repeated": {
			snapshot: observed(cameBack(), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"))),
			after:    time.Hour,
			want:     stuck(v1alpha1.ReasonStuck),
		},
		"a late end of the sidecar clears a stuck pod": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 137)), one(mode(crr), noFallback, respect), attempted(request(0, "proxy"))),
			after:    time.Hour,
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"Kruise being installed clears a pod that had nothing to use": {
			snapshot: observed(pod(), one(noImage, respect)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"an attempt on another container says nothing about this one": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy"), exited("logs", 0).restarted(1)),
				targets(sidecar("logs", mode(image)), sidecar("proxy", mode(image))), attempted(swap("logs"))),
			after: time.Second,
			want:  terminating("Image#1 [proxy] within 1m0s"),
		},
	})
}

func TestSettling(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	one := targets(sidecar("proxy"))
	settling := func(requeue time.Duration) brief {
		return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSettling, Requeue: requeue}
	}
	written := terminating("PodPhase#0=Succeeded [proxy] within 1m0s")

	runScenarios(t, map[string]scenario{
		"the phase is not written while the pod is not quiet": {
			snapshot: observed(pod(), one, withoutKruise, quietFrom(done.Add(time.Second))),
			after:    2 * time.Second,
			want:     settling(500 * time.Millisecond),
		},
		"the phase is written once the pod is quiet": {
			snapshot: observed(pod(), one, withoutKruise, quietFrom(done.Add(time.Second))),
			after:    time.Second + settle,
			want:     written,
		},
		"the phase of mode CRR is not written while the pod is not quiet": {
			snapshot: observed(pod(), one, quietFrom(done)),
			want:     settling(settle),
		},
		"a request alone needs no quiet pod": {
			snapshot: observed(pod(), targets(sidecar("proxy", respect)), quietFrom(done)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a swap needs no quiet pod": {
			snapshot: observed(pod(), targets(sidecar("proxy", mode(image))), quietFrom(done)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a pod that is never quiet is waited for no longer than twenty settle periods": {
			snapshot: observed(pod(), one, withoutKruise, quietFrom(done.Add(29*time.Second))),
			after:    29*time.Second + 100*time.Millisecond,
			want:     settling(900 * time.Millisecond),
		},
		"a pod that is never quiet is written to after twenty settle periods": {
			snapshot: observed(pod(), one, withoutKruise, quietFrom(done.Add(30*time.Second))),
			after:    30 * time.Second,
			want:     written,
		},
		"a drain puts the bound off": {
			snapshot: observed(pod(), targets(sidecar("proxy", drain(minute))), withoutKruise, quietFrom(done.Add(minute))),
			after:    minute,
			want:     settling(settle),
		},
		"an attempt that failed just now puts the bound off": {
			snapshot: observed(pod(), targets(sidecar("proxy", mode(image))), withoutKruise, attempted(swap("proxy")), quietFrom(done.Add(minute))),
			after:    minute,
			want:     settling(settle),
		},
		"a container that was seen just now to have ended puts the bound off, whenever it ended by the clock of its node": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy"), exited("logs", 0)),
				targets(sidecar("logs", respect), sidecar("proxy")), withoutKruise, quietFrom(done.Add(time.Hour)), containersFrom(done.Add(time.Hour))),
			after: time.Hour,
			want:  settling(settle),
		},
		"a pod that is never quiet is written to after twenty settle periods by the operator's own clock": {
			snapshot: observed(pod(), one, withoutKruise, quietFrom(done.Add(time.Hour)), containersFrom(done.Add(time.Hour-20*settle))),
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
				targets(sidecar("logs", respect), sidecar("proxy", respect)), attempted(request(0, "logs", "proxy"), swap("proxy"))),
			want: []plan.Failure{
				{Container: "logs", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: crr, Attempt: 0}, {Container: "proxy", Mode: image, Attempt: 0},
			},
		},
		"a container that has ended has no failures": {
			snapshot: observed(newPod(never, exited("main", 0), exited("logs", 0), running("proxy")),
				targets(sidecar("logs", respect), sidecar("proxy", respect)), attempted(request(0, "logs"))),
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
		"nothing was tried": {nil, ""},
		"a phase that was written for a request counts as CRR": {[]plan.Attempt{phaseWrite(0, crr)}, crr},
		"the newest attempt counts":                            {[]plan.Attempt{at(swap("proxy"), minute), request(0, "proxy")}, image},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := observed(newPod(never, exited("main", 0), running("proxy")), targets(sidecar("proxy")), attempted(test.attempts...))
			if diff := cmp.Diff(test.want, plan.Next(s, done).Tried); diff != "" {
				t.Errorf("Tried (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAStuckSidecarSaysWhatItWaitsFor(t *testing.T) {
	pod := newPod(never, exited("main", 0), unpullable("proxy").restarted(1))
	s := observed(pod, []resolve.Target{sidecar("proxy", mode(v1alpha1.ModeImage), noFallback)})
	s.Attempts = []plan.Attempt{{
		Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, Started: done, RestartCounts: map[string]int32{"proxy": 0},
	}}
	decision := plan.Next(s, done.Add(time.Hour))
	if decision.Reason != v1alpha1.ReasonStuck || !strings.Contains(decision.Message, "it is waiting: ImagePullBackOff") {
		t.Errorf("got %s: %s", decision.Reason, decision.Message)
	}
}
