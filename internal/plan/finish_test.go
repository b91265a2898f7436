// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestFinish(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	two := func() *corev1.Pod { return finishedMain(never, running("logs"), running("proxy")) }
	for name, tc := range map[string]struct {
		snapshot plan.Snapshot
		mode     v1alpha1.Mode
		after    time.Duration
		want     brief
	}{
		"phase":                      {snapshot: observed(pod(), oneProxy()), want: terminating(phaseOfProxy)},
		"image":                      {snapshot: observed(pod(), oneProxy()), mode: image, want: terminating(swapOfProxy)},
		"phase of failed main":       {snapshot: observed(newPod(never, exited("main", 3), running("proxy")), oneProxy()), want: terminating("PodPhase#0=Failed [proxy] within 1m0s")},
		"other mode declared":        {snapshot: observed(pod(), oneProxy(mode(crr), noFallback)), want: terminating(phaseOfProxy)},
		"modes disabled":             {snapshot: observed(pod(), oneProxy(), func(s *plan.Snapshot) { s.Capabilities.EnabledModes = plan.EnabledModes{} }), want: terminating(phaseOfProxy)},
		"image disabled":             {snapshot: observed(pod(), oneProxy(), func(s *plan.Snapshot) { s.Capabilities.Image = false }), mode: image, want: terminating(swapOfProxy)},
		"long grace period":          {snapshot: observed(pod(), oneProxy(), grace(2*time.Hour)), want: terminating("PodPhase#0=Succeeded [proxy] within 2h0m30s")},
		"failed CRR":                 {snapshot: observed(pod(), oneProxy(mode(crr), noFallback), attempted(crrAttempt(0, "proxy"))), after: minute, want: fallingBack(phaseOfProxy)},
		"failed swap":                {snapshot: observed(pod(), oneProxy(), attempted(swap("proxy"))), after: minute, want: fallingBack(phaseOfProxy)},
		"phase reverted three times": {snapshot: observed(pod(), oneProxy(), attempted(phaseWrite(2, podPhase))), after: minute, want: fallingBack("PodPhase#3=Succeeded [proxy] within 1m0s")},

		"live CRR": {snapshot: observed(pod(), oneProxy(), attempted(crrAttempt(0, "proxy"))), after: 30 * time.Second, want: inProgress(30 * time.Second)},
		"image after reverted phase": {
			snapshot: observed(pod(), oneProxy(), attempted(phaseWrite(0, podPhase))), mode: image,
			after: 30 * time.Second, want: inProgress(30 * time.Second),
		},
		"image swapOfProxy before": {snapshot: observed(pod(), oneProxy(), attempted(swap("proxy"))), mode: image, after: minute, want: stuck(v1alpha1.ReasonStuck)},
		"main runs":                {snapshot: observed(newPod(never, running("main"), running("proxy")), oneProxy()), want: waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"main will restart":        {snapshot: observed(newPod(onFailure, exited("main", 3), running("proxy")), oneProxy()), want: waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"no sidecar declared":      {snapshot: observed(pod(), nil), want: ignored(v1alpha1.ReasonNoSidecar)},
		"all declared sidecars":    {snapshot: observed(pod(), sidecarsOf(sidecar("main"), sidecar("proxy"))), want: stuck(v1alpha1.ReasonNoMainContainer)},
		"draining":                 {snapshot: observed(pod(), oneProxy(drain(minute))), want: waits(v1alpha1.ReasonDraining, minute)},
		"virtual node":             {snapshot: observed(pod(), oneProxy(), onVirtualNode), want: stuck(v1alpha1.ReasonVirtualNode)},
		"no image":                 {snapshot: observed(pod(), oneProxy(noImage)), mode: image, want: stuck(v1alpha1.ReasonNoQuickExitImage)},
		"image not allowed":        {snapshot: observed(pod(), oneProxy(), withoutImages), mode: image, want: stuck(v1alpha1.ReasonImageNotAllowed)},
		"exit code counts":         {snapshot: observed(pod(), oneProxy(respect)), want: stuck(v1alpha1.ReasonExitCodesRespected)},
		"one of two has no image": {
			snapshot: observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy"))), mode: image, want: stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"finished before": {
			snapshot: observed(pod(), oneProxy(), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			after:    time.Hour, want: ignored(v1alpha1.ReasonPodFinished),
		},
		"guard is overdue": {
			snapshot: guarded(running("proxy")), after: time.Hour, want: ignored(v1alpha1.ReasonPodFinished),
		},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := podPhase
			if tc.mode != "" {
				wanted = tc.mode
			}
			before := slices.Clone(tc.snapshot.View.Sidecars)
			decision := plan.Finish(tc.snapshot, wanted, done.Add(tc.after))
			if diff := cmp.Diff(tc.want, briefly(decision)); diff != "" {
				t.Errorf("Finish() (-want +got):\n%s\nmessage: %s", diff, decision.Message)
			}
			if decision.Message == "" {
				t.Error("Finish() gives no message")
			}
			if diff := cmp.Diff(before, tc.snapshot.View.Sidecars); diff != "" {
				t.Errorf("Finish() changed its argument (-before +after):\n%s", diff)
			}
		})
	}
}

// brokenByFinish returns the invariants that decisions of Finish break, or nothing. They are those of Next, without the limits of
// the operator.
func brokenByFinish(s plan.Snapshot, now time.Time) string {
	var broken []string
	for _, wanted := range []v1alpha1.Mode{podPhase, image} {
		chosen := s
		chosen.Capabilities.EnabledModes = modes(plan.PodPhaseEnabled)
		chosen.View.Sidecars = nil
		for _, declared := range s.View.Sidecars {
			declared.Mode, declared.Fallback = wanted, v1alpha1.FallbackDisabled
			chosen.View.Sidecars = append(chosen.View.Sidecars, declared)
		}
		decision := plan.Finish(s, wanted, now)
		for _, check := range []func(plan.Snapshot, time.Time, plan.Decision) string{
			givesReason, actsOnlyWhenMainsAreDone, namesOnlyOpenSidecars, keepsOneLiveAttempt, writesTheOutcome, skipsUnknownSettings,
		} {
			if problem := check(chosen, now, decision); problem != "" {
				broken = append(broken, string(wanted)+": "+problem)
			}
		}
		if slices.ContainsFunc(decision.Actions, func(a plan.Action) bool { return a.Mode != wanted || a.ReleasePhase }) {
			broken = append(broken, string(wanted)+": another mode")
		}
	}
	return strings.Join(broken, "; ")
}
