// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestMixedSidecars covers pods whose sidecars differ in mode, exit codes, drain or state. "logs" comes before "proxy".
func TestMixedSidecars(t *testing.T) {
	pod := func() *corev1.Pod {
		return newPod(never, exited("main", 0), running("logs"), running("proxy"))
	}
	logsEnded := func(code int32) *corev1.Pod {
		return newPod(never, exited("main", 0), exited("logs", code), running("proxy"))
	}
	waits := func(reason v1alpha1.Reason, requeue time.Duration) brief {
		return brief{Stage: plan.StageTerminating, Reason: reason, Requeue: requeue}
	}

	runScenarios(t, map[string]scenario{
		"two sidecars of one mode share an attempt": {
			snapshot: observed(pod(), targets(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [logs proxy] within 1m0s"),
		},
		"the longest deadline of an attempt's sidecars counts": {
			snapshot: observed(pod(), targets(sidecar("logs", respect), sidecar("proxy", respect, func(t *resolve.Target) { t.Deadline = 5 * minute }))),
			want:     terminating("CRR#0 [logs proxy] within 6m0s"),
		},
		"a request and a swap go side by side": {
			snapshot: observed(pod(), targets(sidecar("logs", mode(image)), sidecar("proxy", respect))),
			want:     terminating("Image#0 [logs] within 1m0s", "CRR#0 [proxy] within 1m0s"),
		},
		"one phase serves a sidecar of mode CRR and one that never started": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("logs"), running("proxy")), targets(sidecar("logs"), sidecar("proxy"))),
			want:     terminating("PodPhase#0=Succeeded [logs proxy] for CRR within 1m0s"),
		},
		"the phase waits for a sidecar that is ended another way": {
			snapshot: observed(pod(), targets(sidecar("logs", respect), sidecar("proxy"))),
			want:     terminating("CRR#0 [logs] within 1m0s"),
		},
		"the phase waits while the attempt on another sidecar is under way": {
			snapshot: observed(pod(), targets(sidecar("logs", respect), sidecar("proxy")), attempted(request(0, "logs"))),
			after:    time.Second,
			want:     waits(v1alpha1.ReasonAttemptInProgress, 59*time.Second),
		},
		"the phase follows the end of the other sidecar": {
			snapshot: observed(logsEnded(0), targets(sidecar("logs", respect), sidecar("proxy")), attempted(request(0, "logs"))),
			after:    time.Second,
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"a respected sidecar that failed leaves the pod failed, and no phase is needed": {
			snapshot: observed(logsEnded(3), targets(sidecar("logs", respect), sidecar("proxy", noImage)), attempted(request(0, "logs"))),
			after:    time.Second,
			want:     terminating("CRR#0 [proxy] instead of [0] within 1m0s"),
		},
		"no other exit code is left beside that of a respected sidecar that failed": {
			snapshot: observed(logsEnded(3), targets(sidecar("logs", respect), sidecar("proxy")), attempted(request(0, "logs"))),
			after:    time.Second,
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a respected sidecar that failed gives the phase": {
			snapshot: observed(logsEnded(3), targets(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise),
			want:     terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"an ignored sidecar that failed does not": {
			snapshot: observed(logsEnded(3), targets(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a request that Kruise has finished is not in the way": {
			snapshot: observed(logsEnded(0), targets(sidecar("logs", respect), sidecar("proxy", respect)),
				attempted(finished(request(0, "logs"), time.Second, ""))),
			after: 2 * time.Second,
			want:  terminating("CRR#1 [proxy] within 1m0s"),
		},
		"a second request waits behind the first": {
			snapshot: observed(pod(), targets(sidecar("logs", respect), sidecar("proxy", respect, drain(10*time.Second))), attempted(request(0, "logs"))),
			after:    10 * time.Second,
			want:     waits(v1alpha1.ReasonAttemptInProgress, 50*time.Second),
		},
		"a second request does not wait for one that has failed": {
			snapshot: observed(pod(), targets(sidecar("logs", respect, noImage), sidecar("proxy", respect, drain(minute))), attempted(request(0, "logs"))),
			after:    minute,
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 30 * time.Second,
				Actions: []string{"CRR#1 [proxy] within 1m0s"}},
		},
		"a swap does not wait behind a request": {
			snapshot: observed(pod(), targets(sidecar("logs", respect), sidecar("proxy", mode(image))), attempted(request(0, "logs"))),
			after:    10 * time.Second,
			want: brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: 50 * time.Second,
				Actions: []string{"Image#0 [proxy] within 1m0s"}},
		},
		"a sidecar that is due does not wait for one that drains": {
			snapshot: observed(pod(), targets(sidecar("logs", respect, drain(minute)), sidecar("proxy", respect))),
			want: brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: minute,
				Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"the phase waits for a sidecar that drains, for it would end it": {
			snapshot: observed(pod(), targets(sidecar("logs", drain(minute)), sidecar("proxy")), withoutKruise),
			after:    10 * time.Second,
			want:     waits(v1alpha1.ReasonDraining, 50*time.Second),
		},
		"two drains are waited for in turn": {
			snapshot: observed(pod(), targets(sidecar("logs", drain(minute)), sidecar("proxy", drain(30*time.Second)))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 20 * time.Second},
		},
		"the phase waits for a sidecar that is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("logs"), running("proxy")), targets(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     waits(v1alpha1.ReasonSidecarStarting, 0),
		},
		"a request does not wait for another sidecar that is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("logs"), running("proxy")), targets(sidecar("logs", respect), sidecar("proxy", respect))),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"the phase is not written over a respected sidecar that cannot be ended": {
			snapshot: observed(pod(), targets(sidecar("logs", respect, noImage), sidecar("proxy")), withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"the phase is written over an ignored sidecar that was given up on": {
			snapshot: observed(pod(), targets(sidecar("logs", mode(image), noImage, noFallback), sidecar("proxy")), withoutKruise),
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoQuickExitImage,
				Actions: []string{"PodPhase#0=Succeeded [proxy] within 1m0s"}},
		},
		"a request after the phase is for those that have started, and takes the place of one in its way": {
			snapshot: observed(newPod(never, exited("main", 0), exited("auth", 0), unpullable("logs"), running("proxy")),
				targets(sidecar("auth", respect), sidecar("logs"), sidecar("proxy")), phase(corev1.PodSucceeded), knowingKubelet,
				attempted(request(0, "auth"), phaseWrite(0, crr))),
			after: minute,
			want:  fallingBack("CRR#0 [proxy] instead of [0] within 1m0s"),
		},
		"a phase that came back is written for all, with the request still under way": {
			snapshot: observed(pod(), targets(sidecar("logs"), sidecar("proxy")), attempted(phaseWrite(0, crr), request(0, "logs", "proxy"))),
			after:    10 * time.Second,
			want:     terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s"),
		},
	})
}
