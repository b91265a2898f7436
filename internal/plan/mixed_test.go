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
		return finishedMain(never, running("logs"), running("proxy"))
	}
	logsEnded := func(code int32) *corev1.Pod {
		return finishedMain(never, exited("logs", code), running("proxy"))
	}

	runScenarios(t, map[string]scenario{
		"two sidecars of one mode share an attempt": {observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise), 0, terminating("PodPhase#1=Succeeded [logs proxy] within 1m0s")},
		"the longest deadline of an attempt's sidecars counts": {
			observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy", func(t *resolve.Sidecar) { t.Timeout = 5 * minute }))),
			0, terminating("CRR#1 [logs proxy] within 6m0s"),
		},
		"a CRR and a swap run at the same time": {observed(pod(), sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy"))), 0, terminating("Image#1 [logs] within 1m0s", crrOfProxy)},
		"a CRR for one that started, the phase later for the other": {
			observed(finishedMain(never, unpullable("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			0, terminating(crrOfProxy),
		},
		"the phase waits for a sidecar that uses another mode": {observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy", mode(podPhase)))), 0, terminating("CRR#1 [logs] within 1m0s")},
		"the phase waits for a respected sidecar":              {observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", mode(podPhase)))), 0, terminating("CRR#1 [logs] within 1m0s")},
		"the phase waits for another sidecar's CRR": {
			observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", mode(podPhase))), attempted(crrAttempt(1, "logs"))),
			time.Second, inProgress(59 * time.Second),
		},
		"the phase waits for another sidecar's swap": {
			observed(pod(), sidecarsOf(sidecar("logs", mode(image)), sidecar("proxy", mode(podPhase))), attempted(swap("logs"))),
			time.Second, inProgress(59 * time.Second),
		},
		"the phase waits for a respected sidecar without a usable mode": {
			observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"the phase follows the end of the other sidecar": {
			observed(logsEnded(0), sidecarsOf(sidecar("logs", respect), sidecar("proxy", mode(podPhase))), attempted(crrAttempt(1, "logs"))),
			time.Second, terminating(phaseOfProxy),
		},
		"the phase of one covers a sidecar that is stuck": {
			observed(pod(), sidecarsOf(sidecar("logs", mode(image), noImage, noFallback), sidecar("proxy")), withoutKruise),
			0, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoQuickExitImage, Writes: []string{phaseOfProxy}},
		},
		"a failed respected sidecar: the image goes before a CRR": {
			observed(logsEnded(3), sidecarsOf(sidecar("logs", respect), sidecar("proxy")), attempted(crrAttempt(1, "logs"))),
			time.Second, terminating(swapOfProxy),
		},
		"a failed respected sidecar: the phase is Failed":  {observed(logsEnded(3), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise), 0, terminating(failedOfProxy)},
		"a failed ignored sidecar: the phase is Succeeded": {observed(logsEnded(3), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise), 0, terminating(phaseOfProxy)},
		"a finished CRR does not delay the next": {
			observed(logsEnded(0), sidecarsOf(sidecar("logs"), sidecar("proxy")), attempted(finished(crrAttempt(1, "logs"), time.Second, ""))),
			2 * time.Second, terminating("CRR#2 [proxy] within 1m0s"),
		},
		"a CRR replaces one whose containers have ended": {
			observed(logsEnded(0), sidecarsOf(sidecar("logs"), sidecar("proxy")), attempted(crrAttempt(1, "logs"))),
			2 * time.Second, terminating("CRR#1 [proxy] instead of [1] within 1m0s"),
		},
		"a second CRR waits for the first": {
			observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy", drain(10*time.Second))), attempted(crrAttempt(1, "logs"))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"a second CRR does not wait for a failed one": {
			observed(pod(), sidecarsOf(sidecar("logs", respect), sidecar("proxy", drain(minute))), attempted(crrAttempt(1, "logs"))),
			minute, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Requeue: 30 * time.Second, Writes: []string{"CRR#2 [proxy] within 1m0s"}},
		},
		"a swap does not wait for a CRR": {
			observed(pod(), sidecarsOf(sidecar("logs"), sidecar("proxy", mode(image))), attempted(crrAttempt(1, "logs"))),
			10 * time.Second, requeued(terminating(swapOfProxy), 50*time.Second),
		},
		"a sidecar that is due does not wait for one that drains": {observed(pod(), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy"))), 0, terminating(crrOfProxy)},
		"the phase waits for a draining sidecar": {
			observed(pod(), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy")), withoutKruise),
			10 * time.Second, pending(v1alpha1.ReasonDraining, 50*time.Second),
		},
		"two drains: requeue for the shorter first": {
			observed(pod(), sidecarsOf(sidecar("logs", drain(minute)), sidecar("proxy", drain(30*time.Second)))),
			10 * time.Second, waits(v1alpha1.ReasonDraining, 20*time.Second),
		},
		"the phase waits for a sidecar being created": {
			observed(finishedMain(never, creating("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy")), withoutKruise),
			0, pending(v1alpha1.ReasonSidecarStarting, 0),
		},
		"a CRR does not wait for a sidecar being created": {observed(finishedMain(never, creating("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy"))), 0, terminating(crrOfProxy)},
		"a CRR after the phase replaces an old one": {
			observed(finishedMain(never, exited("auth", 0), unpullable("logs"), running("proxy")),
				sidecarsOf(sidecar("auth"), sidecar("logs"), sidecar("proxy")), endedByPhase, attempted(crrAttempt(1, "auth"))),
			minute, fallingBack("CRR#1 [proxy] instead of [1] within 1m0s"),
		},
	})
}
