// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
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
	restartOn42 := rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)
	for name, tc := range map[string]struct {
		snapshot plan.Snapshot
		mode     v1alpha1.Mode
		after    time.Duration
		want     brief
	}{
		"phase":               {snapshot: observed(pod(), oneProxy()), want: terminating(phaseOfProxy)},
		"phase, marked by it": {snapshot: observed(pod(), oneProxy(), unmarked), want: terminating(phaseOfProxy)},
		"phase, recorded by it": {
			snapshot: observed(newPod(never, exited("main", 0).restarting(corev1.ContainerRestartPolicyNever, restartOn42), running("proxy")), oneProxy(), unmarked),
			want:     terminating("PodPhase#1=Succeeded [proxy] within 1m0s"),
		},
		"image":                   {snapshot: observed(pod(), oneProxy(), unmarked), mode: image, want: terminating(swapOfProxy)},
		"phase of failed main":    {snapshot: observed(newPod(never, exited("main", 3), running("proxy")), oneProxy()), want: terminating(failedOfProxy)},
		"other mode declared":     {snapshot: observed(pod(), oneProxy(mode(crr), noFallback)), want: terminating(phaseOfProxy)},
		"modes disabled":          {snapshot: observed(pod(), oneProxy(), func(s *plan.Snapshot) { s.Capabilities.EnabledModes = plan.EnabledModes{} }), want: terminating(phaseOfProxy)},
		"image disabled":          {snapshot: observed(pod(), oneProxy(), func(s *plan.Snapshot) { s.Capabilities.Image = false }), mode: image, want: terminating(swapOfProxy)},
		"grace above the flag":    {snapshot: observed(pod(), oneProxy(), grace(time.Hour), func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = minute }), want: terminating("PodPhase#1=Succeeded [proxy] within 1h0m30s")},
		"grace above one hour":    {snapshot: observed(pod(), oneProxy(), grace(2*time.Hour)), want: stuck(v1alpha1.ReasonGracePeriodTooLong)},
		"failed CRR":              {snapshot: observed(pod(), oneProxy(mode(crr), noFallback), attempted(crrAttempt(1, "proxy"))), after: minute, want: fallingBack(phaseOfProxy)},
		"failed swap":             {snapshot: observed(pod(), oneProxy(), attempted(swap("proxy"))), after: minute, want: fallingBack(phaseOfProxy)},
		"phase without effect":    {snapshot: observed(pod(), oneProxy(), ending(v1alpha1.EndPodPhase)), want: fallingBack(phaseOfProxy)},
		"marks must wait":         {snapshot: observed(pod(), oneProxy(), unmarked, markAfter(minute)), want: terminating(phaseOfProxy)},
		"live CRR":                {snapshot: observed(pod(), oneProxy(), attempted(crrAttempt(1, "proxy"))), after: 30 * time.Second, want: inProgress(30 * time.Second)},
		"image swapped before":    {snapshot: observed(pod(), oneProxy(), attempted(swap("proxy"))), mode: image, after: minute, want: stuck(v1alpha1.ReasonStuck)},
		"outcome not decided":     {snapshot: observed(pod(), oneProxy(), undecided), want: terminating(phaseOfProxy)},
		"image, not decided":      {snapshot: observed(pod(), oneProxy(), undecided), mode: image, want: terminating(swapOfProxy)},
		"disrupted":               {snapshot: observed(pod(), oneProxy(), evicted), want: ignored(v1alpha1.ReasonPodDisrupted)},
		"main runs":               {snapshot: observed(newPod(never, running("main"), running("proxy")), oneProxy(), unmarked), want: waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"main will restart":       {snapshot: observed(newPod(onFailure, exited("main", 3), running("proxy")), oneProxy()), want: waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"no sidecar declared":     {snapshot: observed(pod(), nil), want: ignored(v1alpha1.ReasonNoSidecar)},
		"all declared sidecars":   {snapshot: observed(pod(), sidecarsOf(sidecar("main"), sidecar("proxy"))), want: stuck(v1alpha1.ReasonNoMainContainer)},
		"draining":                {snapshot: observed(pod(), oneProxy(drain(minute))), want: waits(v1alpha1.ReasonDraining, minute)},
		"virtual node":            {snapshot: observed(pod(), oneProxy(), onVirtualNode), want: stuck(v1alpha1.ReasonVirtualNode)},
		"no image":                {snapshot: observed(pod(), oneProxy(noImage)), mode: image, want: stuck(v1alpha1.ReasonNoQuickExitImage)},
		"image not allowed":       {snapshot: observed(pod(), oneProxy(), withoutImages), mode: image, want: stuck(v1alpha1.ReasonImageNotAllowed)},
		"exit code counts":        {snapshot: observed(pod(), oneProxy(respect)), want: stuck(v1alpha1.ReasonExitCodesRespected)},
		"one of two has no image": {snapshot: observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy"))), mode: image, want: stuck(v1alpha1.ReasonNoQuickExitImage)},
		"finished before":         {snapshot: observed(pod(), oneProxy(), endedByPhase), after: time.Hour, want: ignored(v1alpha1.ReasonPodFinished)},
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
