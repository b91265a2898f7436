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
			snapshot: observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [logs proxy] within 1m0s"),
		},
		"the longest deadline of an attempt's sidecars counts": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect, func(t *resolve.Sidecar) { t.Timeout = 5 * minute }))),
			want:     terminating("CRR#0 [logs proxy] within 6m0s"),
		},
		"a CRR and a swap run at the same time": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy", respect))),
			want:     terminating("Image#0 [logs] within 1m0s", "CRR#0 [proxy] within 1m0s"),
		},
		"one phase covers a started and a never-started sidecar": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			want:     terminating("PodPhase#0=Succeeded [logs proxy] for CRR within 1m0s"),
		},
		"the phase waits for a sidecar that uses another mode": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))),
			want:     terminating("CRR#0 [logs] within 1m0s"),
		},
		"the phase waits for another sidecar's attempt": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy")), attempted(crrAttempt(0, "logs"))),
			after:    time.Second,
			want:     waits(v1alpha1.ReasonAttemptInProgress, 59*time.Second),
		},
		"the phase follows the end of the other sidecar": {
			snapshot: observed(logsEnded(0), sidecarsOf(sidecar("logs", respect), sidecar("proxy")), attempted(crrAttempt(0, "logs"))),
			after:    time.Second,
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"a failed respected sidecar: no phase before the CRR": {
			snapshot: observed(logsEnded(3), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), attempted(crrAttempt(0, "logs"))),
			after:    time.Second,
			want:     terminating("CRR#0 [proxy] instead of [0] within 1m0s"),
		},
		"a failed respected sidecar: the image goes before a CRR": {
			snapshot: observed(logsEnded(3), sidecarsOf(sidecar("logs", respect), sidecar("proxy")), attempted(crrAttempt(0, "logs"))),
			after:    time.Second,
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a failed respected sidecar: the phase is Failed": {
			snapshot: observed(logsEnded(3), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise),
			want:     terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"a failed ignored sidecar: the phase is Succeeded": {
			snapshot: observed(logsEnded(3), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a finished CRR does not delay the next": {
			snapshot: observed(logsEnded(0), sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect)),
				attempted(finished(crrAttempt(0, "logs"), time.Second, ""))),
			after: 2 * time.Second,
			want:  terminating("CRR#1 [proxy] within 1m0s"),
		},
		"a second CRR waits for the first": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect, drain(10*time.Second))), attempted(crrAttempt(0, "logs"))),
			after:    10 * time.Second,
			want:     waits(v1alpha1.ReasonAttemptInProgress, 50*time.Second),
		},
		"a second CRR does not wait for a failed one": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect, noImage), sidecar("proxy", respect, drain(minute))), attempted(crrAttempt(0, "logs"))),
			after:    minute,
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 30 * time.Second,
				Actions: []string{"CRR#1 [proxy] within 1m0s"}},
		},
		"a swap does not wait for a CRR": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", mode(image))), attempted(crrAttempt(0, "logs"))),
			after:    10 * time.Second,
			want: brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: 50 * time.Second,
				Actions: []string{"Image#0 [proxy] within 1m0s"}},
		},
		"a sidecar that is due does not wait for one that drains": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect, drain(minute)), sidecar("proxy", respect))),
			want: brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: minute,
				Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"the phase waits for a draining sidecar": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy")), withoutKruise),
			after:    10 * time.Second,
			want:     waits(v1alpha1.ReasonDraining, 50*time.Second),
		},
		"two drains: requeue for the shorter first": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy", drain(30*time.Second)))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 20 * time.Second},
		},
		"the phase waits for a sidecar being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise),
			want:     waits(v1alpha1.ReasonSidecarStarting, 0),
		},
		"a CRR does not wait for a sidecar being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy", respect))),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"no phase while a respected sidecar has no usable mode": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", respect, noImage), sidecar("proxy")), withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"the phase covers an ignored sidecar without a usable mode": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs", mode(image), noImage, noFallback), sidecar("proxy")), withoutKruise),
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoQuickExitImage,
				Actions: []string{"PodPhase#0=Succeeded [proxy] within 1m0s"}},
		},
		"a CRR after the phase replaces an old one": {
			snapshot: observed(newPod(never, exited("main", 0), exited("auth", 0), unpullable("logs"), running("proxy")),
				sidecarsOf(sidecar("auth", respect), sidecar("logs"), sidecar("proxy")), phase(corev1.PodSucceeded), phaseKnown,
				attempted(crrAttempt(0, "auth"), phaseWrite(0, crr))),
			after: minute,
			want:  fallingBack("CRR#0 [proxy] instead of [0] within 1m0s"),
		},
		"an overwritten phase is rewritten during the CRR": {
			snapshot: observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy")), attempted(phaseWrite(0, crr), crrAttempt(0, "logs", "proxy"))),
			after:    10 * time.Second,
			want:     terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s"),
		},
	})
}
