// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestFailedMain covers the first attempt after a main container has failed under Never. Kubernetes matches a Job's
// podFailurePolicy against the exit codes of all containers, so an ignored sidecar must not leave one. A swapped container
// exits 0.
func TestFailedMain(t *testing.T) {
	pod := func(sidecars ...container) *corev1.Pod {
		return newPod(never, append([]container{exited("main", 1)}, sidecars...)...)
	}
	proxy := func() *corev1.Pod { return pod(running("proxy")) }
	one := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("proxy", changes...))
	}

	runScenarios(t, map[string]scenario{
		"Auto swaps the image before a CRR": {
			snapshot: observed(proxy(), one()),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR when the swap has failed": {
			snapshot: observed(proxy(), one(), attempted(swap("proxy"))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR if the image lacks the command": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), one()),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR when there is no image": {
			snapshot: observed(proxy(), one(noImage)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR when the image is not allowed": {
			snapshot: observed(proxy(), one(from(resolve.SourcePolicy)), withoutImages),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR when exit codes are respected": {
			snapshot: observed(proxy(), one(respect)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image where the phase is the last resort": {
			snapshot: observed(proxy(), one(), lastResort),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image of a sidecar that never started": {
			snapshot: observed(pod(unpullable("proxy")), one()),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image on a virtual node": {
			snapshot: observed(proxy(), one(), onVirtualNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image on a node without the daemon": {
			snapshot: observed(proxy(), one(), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a declared CRR is used": {
			snapshot: observed(proxy(), one(mode(crr))),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a declared CRR falls back to the image": {
			snapshot: observed(proxy(), one(mode(crr)), withoutKruise),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a declared PodPhase is used": {
			snapshot: observed(proxy(), one(mode(podPhase))),
			want:     terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"a declared PodPhase falls back to the image": {
			snapshot: observed(proxy(), one(mode(podPhase)), withoutPodPhase),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"an overwritten phase falls back to the image": {
			snapshot: observed(proxy(), one(mode(podPhase)), attempted(phaseWrite(2, podPhase))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a phase Failed that ended nothing falls back to a CRR": {
			snapshot: observed(proxy(), one(mode(podPhase)), phase(corev1.PodFailed), attempted(phaseWrite(0, podPhase))),
			after:    minute,
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"a declared Image falls back to a CRR": {
			snapshot: observed(proxy(), one(mode(image), noImage)),
			want:     fallingBack("CRR#0 [proxy] within 1m0s"),
		},
		"each of two sidecars by its own exit codes": {
			snapshot: observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))),
			want:     terminating("Image#0 [proxy] within 1m0s", "CRR#0 [logs] within 1m0s"),
		},
		"each of two sidecars by its own mode": {
			snapshot: observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(crr)), sidecar("proxy"))),
			want:     terminating("Image#0 [proxy] within 1m0s", "CRR#0 [logs] within 1m0s"),
		},
		"a declared PodPhase waits for the swap of the other": {
			snapshot: observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy"))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a main that never restarts under OnFailure": {
			snapshot: observed(newPod(onFailure, exited("main", 1).restarting(corev1.ContainerRestartPolicyNever), running("proxy")), one()),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a sidecar that never restarts under OnFailure": {
			snapshot: observed(newPod(onFailure, exited("main", 1).restarting(corev1.ContainerRestartPolicyNever),
				running("proxy").restarting(corev1.ContainerRestartPolicyNever)), one()),
			want: terminating("Image#0 [proxy] within 1m0s"),
		},
		"a sidecar that restarts on failure": {
			snapshot: observed(pod(running("proxy").restarting(corev1.ContainerRestartPolicyOnFailure)), one()),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
	})
}
