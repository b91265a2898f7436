// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestAttempts covers the decision after an attempt on one sidecar.
func TestAttempts(t *testing.T) {
	of := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never), oneProxy(), changes...)
	}
	ofCRR := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never), oneProxy(mode(crr), noFallback), changes...)
	}
	proxy := func(c container, changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never, c), oneProxy(), append(changes, assumeMarked)...)
	}
	cameBack := func() *corev1.Pod { return finishedMain(onFailure, running("proxy").restarted(1)) }
	stuckAfterFailure := stuck(v1alpha1.ReasonStuck)

	runScenarios(t, map[string]scenario{
		"a CRR in progress is given until its deadline":      {of(attempted(crrAttempt(1, "proxy"))), 59 * time.Second, inProgress(time.Second)},
		"a CRR fails at its deadline":                        {of(attempted(crrAttempt(1, "proxy"))), minute, fallingBack(phaseOfProxy)},
		"a CRR of three containers has three grace periods":  {of(attempted(crrAttempt(1, "proxy", "a", "b"))), minute, inProgress(minute)},
		"a swap of three containers has three grace periods": {of(attempted(swap("proxy", "a", "b"))), minute, inProgress(minute)},
		"a CRR fails as soon as the sidecar restarts":        {observed(cameBack(), oneProxy(), attempted(crrAttempt(1, "proxy"))), 2 * time.Second, fallingBack(phaseOfProxy)},
		"a finished CRR waits for the pod's status":          {of(attempted(finished(crrAttempt(1, "proxy"), 10*time.Second, ""))), 12 * time.Second, inProgress(3 * time.Second)},
		"a finished CRR without effect has failed":           {of(attempted(finished(crrAttempt(1, "proxy"), 10*time.Second, ""))), 15 * time.Second, fallingBack(phaseOfProxy)},
		"a CRR that Kruise gave up on fails before a long deadline": {
			of(grace(time.Hour), attempted(finished(crrAttempt(1, "proxy"), minute, "daemon has not responded"))),
			minute, inProgress(5 * time.Second),
		},
		"a swap waits for the new container":                  {proxy(exited("proxy", 143), attempted(swap("proxy"))), time.Second, inProgress(59 * time.Second)},
		"a swap after a CRR waits for the new container":      {proxy(exited("proxy", 143), attempted(crrAttempt(1, "proxy"), swap("proxy"))), time.Second, inProgress(59 * time.Second)},
		"a swap is complete when the new container has ended": {proxy(exited("proxy", 0).restarted(1), attempted(swap("proxy"))), time.Second, terminated()},
		"a sidecar that exited before its swap has ended":     {proxy(exited("proxy", 0), attempted(at(swap("proxy"), time.Second))), 2 * time.Second, terminated()},
		"a swap waits for the new container although the node's clock is behind": {
			proxy(exited("proxy", 143).endedAt(done.Add(-50*minute)), attempted(swap("proxy"))),
			time.Second, inProgress(59 * time.Second),
		},
		"a sidecar that exited long before its swap has ended at the deadline": {proxy(exited("proxy", 143).endedAt(done.Add(-50*minute)), attempted(swap("proxy"))), minute, terminated()},
		"a sidecar that exited at an unknown time has ended":                   {proxy(exited("proxy", 0).endedAt(time.Time{}), attempted(swap("proxy"))), time.Second, terminated()},
		"a swap to an unpullable image falls back to the phase": {
			observed(finishedMain(onFailure, crashLooping("proxy").restarted(0)), oneProxy(), withoutKruise, attempted(swap("proxy")), assumeMarked),
			minute, fallingBack(phaseOfProxy),
		},
		"no fallback: a failed attempt leaves the pod stuck": {observed(finishedMain(never), oneProxy(mode(image), noFallback), attempted(swap("proxy"))), minute, stuckAfterFailure},
		"every mode failed: stuck, and a CRR retry is due":   {ofCRR(attempted(crrAttempt(1, "proxy"))), minute, requeued(stuckAfterFailure, 30*time.Second)},
		"a failed CRR is retried after 30 s": {
			ofCRR(attempted(crrAttempt(1, "proxy"))),
			90 * time.Second, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Writes: []string{"CRR#2 [proxy] within 1m0s"}},
		},
		"the retry interval doubles":   {ofCRR(attempted(crrAttempt(1, "proxy"), at(crrAttempt(2, "proxy"), 90*time.Second))), 150 * time.Second, requeued(stuckAfterFailure, minute)},
		"the retry interval is capped": {ofCRR(attempted(slices.Repeat([]plan.Attempt{crrAttempt(1, "proxy")}, 8)...)), minute, requeued(stuckAfterFailure, 10*minute)},
		"a stuck pod waits for its CRR retry": {
			ofCRR(attempted(crrAttempt(1, "proxy"), at(crrAttempt(2, "proxy"), 90*time.Second))),
			100 * time.Second, requeued(stuckAfterFailure, 50*time.Second),
		},
		"a CRR before a restart of all containers does not count": {
			observed(newPod(never, exited("main", 0).restarted(1), running("proxy").restarted(1)), oneProxy(mode(crr), noFallback), attempted(withMainRestarts(crrAttempt(1, "proxy"), 0))),
			time.Hour, terminating("CRR#2 [proxy] within 1m0s"),
		},
		"a CRR before a container became a main container counts": {
			observed(newPod(onFailure, exited("main", 0), exited("setup", 0).restarted(3), running("proxy")), oneProxy(mode(crr), noFallback),
				attempted(withMainRestarts(crrAttempt(1, "proxy"), 0))),
			time.Second, inProgress(59 * time.Second),
		},
		"after the largest number, the lowest follows": {
			ofCRR(attempted(crrAttempt(plan.MaxNumber, "other"), crrAttempt(1, "other"))), 0, terminating("CRR#2 [proxy] within 1m0s"),
		},
		"a CRR after a restart of all containers counts": {
			observed(newPod(never, exited("main", 0).restarted(1), running("proxy").restarted(2)), oneProxy(mode(crr), noFallback), attempted(withMainRestarts(crrAttempt(1, "proxy"), 1))),
			time.Hour, stuckAfterFailure,
		},
		"a CRR that restarted the sidecar is not retried":      {observed(cameBack(), oneProxy(mode(crr), noFallback), attempted(crrAttempt(1, "proxy"))), time.Hour, stuckAfterFailure},
		"a sidecar that ends late clears a stuck pod":          {observed(finishedMain(never, exited("proxy", 137)), oneProxy(mode(crr), noFallback), attempted(crrAttempt(1, "proxy")), assumeMarked), time.Hour, terminated()},
		"installing Kruise clears a pod without a usable mode": {observed(finishedMain(never), oneProxy(noImage, respect)), 0, terminating(crrOfProxy)},
		"an attempt on another container does not count": {
			observed(finishedMain(never, running("proxy"), exited("logs", 0).restarted(1)),
				sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy", mode(image))), attempted(swap("logs"))),
			time.Second, terminating("Image#2 [proxy] within 1m0s"),
		},
	})
}

// TestPhaseAttempt covers the attempt of mode PodPhase, which the pod shows.
func TestPhaseAttempt(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 3), running("proxy")) }
	inAdvance, markDenied := ending(v1alpha1.EndPodPhase), denying(podPhase)
	onlyPhase := oneProxy(mode(podPhase), noFallback)

	runScenarios(t, map[string]scenario{
		"the phase ends the pod":                      {observed(pod(), oneProxy(), endedByPhase), 10 * time.Second, inProgress(50 * time.Second)},
		"its deadline counts from the phase":          {observed(pod(), oneProxy(), endedByPhase, phaseSince(2*minute)), 2*minute + 10*time.Second, inProgress(50 * time.Second)},
		"its deadline if the node's clock is ahead":   {observed(pod(), oneProxy(), endedByPhase, phaseSince(-50*minute)), -50*minute + 10*time.Second, inProgress(50 * time.Second)},
		"a CRR follows at the deadline":               {observed(pod(), oneProxy(), endedByPhase, phaseSince(2*minute)), 3 * minute, fallingBack(crrOfProxy)},
		"a CRR follows a declared phase":              {observed(pod(), oneProxy(mode(podPhase)), endedByPhase), minute, fallingBack(crrOfProxy)},
		"no CRR without fallback":                     {observed(pod(), onlyPhase, endedByPhase), minute, stuck(v1alpha1.ReasonStuck)},
		"no CRR without Kruise, no image":             {observed(pod(), oneProxy(), withoutKruise, endedByPhase), minute, stuck(v1alpha1.ReasonStuck)},
		"the CRR is an attempt as well":               {observed(pod(), oneProxy(), endedByPhase, attempted(at(crrAttempt(1, "proxy"), minute))), 90 * time.Second, inProgress(30 * time.Second)},
		"a CRR that lasts when the phase is set":      {observed(pod(), oneProxy(), endedByPhase, attempted(crrAttempt(1, "proxy"))), 10 * time.Second, inProgress(50 * time.Second)},
		"a mark without effect fails at once":         {observed(pod(), oneProxy(), inAdvance, markDenied), 0, deniedMark(requeued(fallingBack(crrOfProxy), 15*time.Second))},
		"a mark without effect, no fallback":          {observed(pod(), onlyPhase, inAdvance, markDenied), 0, deniedMark(requeued(stuck(v1alpha1.ReasonStuck), time.Second))},
		"the mark of another pod is no attempt":       {observed(pod(), onlyPhase, func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationEnd, "PodPhase/other") }), 0, terminating(phaseOfProxy)},
		"a mark in advance is none while a main runs": {observed(newPod(never, running("main"), running("proxy")), onlyPhase, inAdvance), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a mark in advance is none if a main failed":  {observed(failed(), oneProxy(mode(podPhase)), inAdvance), 0, terminating(failedOfProxy)},
		"phase Failed ends the pod":                   {observed(failed(), oneProxy(), failedByPhase), 10 * time.Second, inProgress(50 * time.Second)},
		"a CRR follows phase Failed":                  {observed(failed(), oneProxy(), failedByPhase), minute, fallingBack(crrOfProxy)},
		"phase Failed without effect fails at once":   {observed(failed(), oneProxy(mode(podPhase)), ending(v1alpha1.EndFailed)), 0, marking("[proxy]")},
	})
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		want     []plan.Failure
	}{
		"each failed attempt is named with its container": {
			observed(finishedMain(never, running("logs"), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(1, "logs", "proxy"), swap("proxy"))),
			[]plan.Failure{{Container: "logs", Mode: crr, Attempt: 1}, {Container: "proxy", Mode: crr, Attempt: 1}, {Container: "proxy", Mode: image, Attempt: 1}},
		},
		"a failure after a live attempt": {
			observed(finishedMain(never), oneProxy(respect), attempted(at(swap("proxy"), time.Hour), crrAttempt(1, "proxy"))),
			[]plan.Failure{{Container: "proxy", Mode: crr, Attempt: 1}},
		},
		"a container that has ended has no failures": {
			observed(finishedMain(never, exited("logs", 0), running("proxy")),
				sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)), attempted(crrAttempt(1, "logs"))),
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
		change func(*plan.Snapshot)
		mode   v1alpha1.Mode
		number int
	}{
		"no attempt":                     {attempted(), "", 0},
		"the newest attempt counts":      {attempted(at(swap("proxy"), minute), crrAttempt(1, "proxy")), image, 1},
		"the newest attempt is the last": {attempted(swap("proxy"), at(crrAttempt(4, "proxy"), minute)), crr, 4},
		"the phase":                      {endedByPhase, podPhase, 1},
		"a swap that lost its record": {func(s *plan.Snapshot) {
			*s = observed(finishedMain(never, exited("proxy", 0).swapped().restarted(1)), oneProxy(), onVirtualNode, assumeMarked)
		}, image, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(observed(finishedMain(never), oneProxy(), test.change), done)
			if decision.Tried != test.mode || decision.TriedNumber != test.number {
				t.Errorf("Tried: got %s#%d, want %s#%d", decision.Tried, decision.TriedNumber, test.mode, test.number)
			}
		})
	}
}

// A denied write is not an attempt: the next usable mode follows.
func TestDeniedWrite(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }

	runScenarios(t, map[string]scenario{
		"a denied phase falls to the image":                {observed(pod(), oneProxy(), withoutKruise, denying(podPhase)), 0, requeued(terminating(swapOfProxy), 15*time.Second)},
		"a denied mark: an exit code counts after a CRR":   {observed(pod(), oneProxy(), unmarked, denying(podPhase)), 0, deniedMark(requeued(terminating(swapOfProxy), 15*time.Second))},
		"a denied phase of a recorded pod does not matter": {observed(pod(), oneProxy(), denying(podPhase)), 0, requeued(terminating(crrOfProxy), 15*time.Second)},
		"a denied swap in a failed pod falls to a CRR":     {observed(newPod(never, exited("main", 7), running("proxy")), oneProxy(), denying(image)), 0, requeued(terminating(crrOfProxy), 15*time.Second)},
		"a denied CRR falls to the phase":                  {observed(pod(), oneProxy(), denying(crr)), 0, requeued(terminating(phaseOfProxy), 15*time.Second)},
		"a denied declared swap falls to the phase":        {observed(pod(), oneProxy(mode(image)), withoutKruise, denying(image)), 0, requeued(fallingBack(phaseOfProxy), 15*time.Second)},
		"no usable mode is left if all writes are denied":  {observed(pod(), oneProxy(), withoutKruise, denying(podPhase, image)), 0, requeued(stuck(v1alpha1.ReasonNoUsableMode), time.Second)},
		"a denied mode without fallback is stuck":          {observed(pod(), oneProxy(mode(image), noFallback), denying(image)), 0, requeued(stuck(v1alpha1.ReasonWriteRefused), time.Second)},
		"a missing image is reported before the denial":    {observed(pod(), oneProxy(mode(image), noFallback, noImage), denying(image)), 0, requeued(stuck(v1alpha1.ReasonNoQuickExitImage), time.Second)},
		"an attempt in progress continues":                 {observed(pod(), oneProxy(mode(image), noFallback), attempted(swap("proxy")), denying(image)), 0, inProgress(15 * time.Second)},
		"a failed attempt is reported first":               {observed(pod(), oneProxy(mode(image)), withoutKruise, attempted(swap("proxy")), denying(podPhase)), minute, requeued(stuck(v1alpha1.ReasonStuck), minute)},
		"a denied mark is tried again while mains run":     {observed(newPod(never, running("main"), running("proxy")), oneProxy(), unmarked, denying(podPhase)), -minute, deniedMark(waits(v1alpha1.ReasonMainContainersRunning, 10*minute))},
	})
}

// The earlier attempts on a pod are unknown if their record is corrupt.
func TestInvalidAnnotation(t *testing.T) {
	proxy := oneProxy()
	corrupt := func(s *plan.Snapshot) { s.InvalidAnnotation = "unreadable record on the pod: annotation a: no JSON" }
	left := stuck(v1alpha1.ReasonInvalidAnnotation)

	runScenarios(t, map[string]scenario{
		"stops the operator from acting":                {observed(finishedMain(never), proxy, corrupt), 0, left},
		"is reported while the main container runs":     {observed(newPod(never, running("main"), running("proxy")), proxy, corrupt), 0, left},
		"is reported after the phase has ended the pod": {observed(finishedMain(never), proxy, endedByPhase, corrupt), 0, left},
		"does not matter to a pod without a sidecar":    {observed(newPod(never, exited("main", 0)), nil, corrupt), 0, ignored(v1alpha1.ReasonNoSidecar)},
		"does not matter once the pod has finished":     {observed(finishedMain(never, exited("proxy", 0)), proxy, phase(corev1.PodSucceeded), corrupt), 0, ignored(v1alpha1.ReasonPodFinished)},
		"does not matter once every sidecar has ended":  {observed(finishedMain(never, exited("proxy", 0)), proxy, corrupt, assumeMarked), 0, terminated()},
	})
}

// TestLostSwap covers pods whose sidecar has its quick-exit image, but no record of the swap.
func TestLostSwap(t *testing.T) {
	const late = 5 * time.Second
	// ran is an ended container with the quick-exit image. It started this long after the mains were done.
	ran := func(code int32, started time.Duration) container {
		c := exited("proxy", code).swapped().endedAt(done.Add(late))
		c.status.State.Terminated.StartedAt = metav1.NewTime(done.Add(started))
		return c
	}
	pod := func(policy corev1.RestartPolicy, c container) *corev1.Pod {
		return finishedMain(policy, c)
	}

	runScenarios(t, map[string]scenario{
		"the old container still runs": {observed(pod(never, running("proxy").swapped()), oneProxy(), onVirtualNode), 10 * time.Second, inProgress(50 * time.Second)},
		"the old container still runs, and the node's clock is ahead": {
			observed(newPod(never, exited("main", 0).endedAt(done.Add(50*minute)), running("proxy").swapped()), oneProxy(), onVirtualNode, drainsSince(done)),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"old container ended, new one not started":       {observed(pod(never, ran(7, -minute)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(late + 50*time.Second)},
		"old container ended, start time unknown":        {observed(pod(never, exited("proxy", 0).swapped()), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(50 * time.Second)},
		"the new container has ended":                    {observed(pod(never, ran(0, 2*time.Second)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"new container ended, start time unknown":        {observed(pod(never, exited("proxy", 0).swapped().restarted(1)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"new container of a never-started sidecar ended": {observed(pod(onFailure, ran(0, 0)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, terminated()},
		"old container failed and will restart":          {observed(pod(onFailure, ran(7, -minute)), oneProxy(), onVirtualNode, assumeMarked), 10 * time.Second, inProgress(late + 50*time.Second)},
		"the new image cannot be pulled":                 {observed(pod(onFailure, unpullable("proxy").swapped()), oneProxy(), onVirtualNode, assumeMarked), 10 * minute, stuck(v1alpha1.ReasonStuck)},
		"the quick-exit image alone does not end a drain": {
			observed(pod(never, running("proxy").swapped()), oneProxy(drain(minute)), onVirtualNode),
			10 * time.Second, waits(v1alpha1.ReasonDraining, 50*time.Second),
		},
		"mode Image on any node":                              {observed(pod(never, running("proxy").swapped()), oneProxy(mode(image))), 10 * time.Second, inProgress(50 * time.Second)},
		"mode Image falls back after its deadline":            {observed(pod(onFailure, unpullable("proxy").swapped()), oneProxy(mode(image)), onDaemonlessNode, assumeMarked), 10 * minute, fallingBack(phaseOfProxy)},
		"Image is not the first mode: the first mode is used": {observed(pod(never, running("proxy").swapped()), oneProxy(), onDaemonlessNode), 10 * time.Second, terminating(phaseOfProxy)},
		"another sidecar is swapped at the same time": {
			observed(finishedMain(never, running("proxy").swapped(), running("other")), sidecarsOf(sidecar("other"), sidecar("proxy")), onVirtualNode),
			10 * time.Second, requeued(terminating("Image#2 [other] within 1m0s"), 50*time.Second),
		},
	})
}
