// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestTerminationOrder covers pods whose sidecar "proxy" ends after "logs".
func TestTerminationOrder(t *testing.T) {
	const crrOfLogs = "CRR#1 [logs] within 1m0s"
	last := order(100)
	both := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("logs", changes...), sidecar("proxy", append(changes, last)...))
	}
	pod := func(logs container) *corev1.Pod { return finishedMain(never, logs, running("proxy")) }
	restarting := func(logs container) *corev1.Pod { return finishedMain(onFailure, logs, running("proxy")) }
	runScenarios(t, map[string]scenario{
		"the first one ends first":    {observed(pod(running("logs")), both()), 0, terminating(crrOfLogs)},
		"the last one waits":          {observed(pod(running("logs")), both(), attempted(crrAttempt(1, "logs"))), time.Second, inProgress(59 * time.Second)},
		"the last one follows an end": {observed(pod(exited("logs", 143)), both(), attempted(crrAttempt(1, "logs"))), time.Second, terminating("CRR#1 [proxy] instead of [1] within 1m0s")},
		"it follows a stopped one":    {observed(pod(exited("logs", 143)), both(), attempted(stopped(crrAttempt(1, "logs")))), time.Second, terminating("CRR#1 [proxy] instead of [1] within 1m0s")},
		"one that restarts had its turn: the phase ends both": {
			observed(restarting(running("logs").restarted(1)), both(noImage), attempted(finished(crrAttempt(1, "logs"), time.Second, ""))),
			2 * time.Second, fallingBack("PodPhase#1=Succeeded [logs proxy] within 1m0s"),
		},
		"one that restarts had its turn: no phase": {
			observed(restarting(running("logs").restarted(1)), both(), attempted(finished(crrAttempt(1, "logs"), time.Second, "")), withoutPodPhase),
			2 * time.Second, fallingBack("Image#1 [logs] within 1m0s", "CRR#2 [proxy] within 1m0s"),
		},
		"it follows a crash loop": {observed(restarting(crashLooping("logs")), both(), withoutKruise), 0, terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s")},
		"it follows one that never started": {
			observed(pod(unpullable("logs")), both()), 0, terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s"),
		},
		"it waits for one that starts": {observed(pod(creating("logs")), both()), 0, pending(v1alpha1.ReasonSidecarStarting, 0)},
		"it waits for a drain":         {observed(pod(running("logs")), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy", last))), 0, waits(v1alpha1.ReasonDraining, minute)},
		"it drains as well":            {observed(pod(exited("logs", 0)), sidecarsOf(sidecar("logs"), sidecar("proxy", last, drain(minute)))), time.Second, waits(v1alpha1.ReasonDraining, 59*time.Second)},
		"an attempt that has failed":   {observed(pod(running("logs")), both(noImage, noFallback, mode(crr)), attempted(finished(crrAttempt(1, "logs"), minute, "timeout"))), 2 * minute, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Writes: []string{"CRR#2 [logs proxy] within 1m30s"}}},
		"one that no mode can end":     {observed(pod(running("logs")), sidecarsOf(sidecar("logs", mode(image), noImage, noFallback), sidecar("proxy", last))), 0, stuck(v1alpha1.ReasonNoQuickExitImage)},
		"what was tried goes on":       {observed(pod(running("logs")), both(), attempted(crrAttempt(1, "proxy"))), time.Second, inProgress(59 * time.Second)},
		"equal values are one moment":  {observed(pod(running("logs")), sidecarsOf(sidecar("logs", last), sidecar("proxy", last))), 0, terminating("CRR#1 [logs proxy] within 1m30s")},

		"without OpenKruise, the image goes first": {observed(pod(running("logs")), both(), withoutKruise), 0, terminating("Image#1 [logs] within 1m0s")},
		"and the phase last":                       {observed(pod(exited("logs", 0)), both(), withoutKruise), 0, terminating("PodPhase#1=Succeeded [proxy] within 1m0s")},
		"only the phase: both at once":             {observed(pod(running("logs")), both(noImage), withoutKruise), 0, unordered(terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s"))},
		"only the phase for the first: both at once": {
			observed(pod(running("logs")), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy", last))), 0, unordered(terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s")),
		},
		"the phase must not end the last": {
			observed(pod(running("logs")), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy", last, respect))), 0, terminating(crrOfProxy),
		},
		"the phase waits for a drain": {
			observed(pod(running("logs")), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", noImage, last, drain(minute))), withoutKruise), 0, pending(v1alpha1.ReasonDraining, minute),
		},
	})
}

func TestDueSince(t *testing.T) {
	both := sidecarsOf(sidecar("logs"), sidecar("proxy", order(100)))
	crrOfLogs := attempted(crrAttempt(1, "logs"))
	late := running("proxy")
	late.status.State.Running.StartedAt = metav1.NewTime(done.Add(5 * minute))
	for name, tc := range map[string]struct {
		snapshot plan.Snapshot
		want     time.Time
	}{
		"since the main containers' end":  {observed(finishedMain(never, running("logs"), running("proxy")), both), done},
		"since a late start":              {observed(finishedMain(never, late), oneProxy()), done.Add(5 * minute)},
		"since the main's end, restarted": {observed(finishedMain(never, late.restarted(1)), oneProxy()), done},
		"since the drain":                 {observed(finishedMain(never, running("proxy")), oneProxy(drain(minute))), done.Add(minute)},
		"since the longest drain":         {observed(finishedMain(onFailure, running("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy", drain(minute)))), done.Add(minute)},
		"since the end of the one before": {observed(finishedMain(never, exited("logs", 143).endedAt(done.Add(10*minute)), running("proxy")), both, crrOfLogs), done.Add(10 * minute)},
		"since the start of an attempt":   {observed(finishedMain(never, exited("logs", 143), running("proxy")), both, attempted(at(crrAttempt(1, "logs"), minute))), done.Add(minute)},
		"nothing is due yet":              {observed(finishedMain(never, running("proxy")), oneProxy(drain(2*time.Hour))), time.Time{}},
		"nothing is open":                 {observed(finishedMain(never, exited("proxy", 0)), oneProxy()), time.Time{}},
		"the main container runs":         {observed(newPod(never, running("main"), running("proxy")), oneProxy()), time.Time{}},
	} {
		if got := plan.DueSince(tc.snapshot, done.Add(time.Hour)); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
