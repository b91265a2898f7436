// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
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

	runScenarios(t, map[string]scenario{
		"Auto creates a CRR when the swap has failed":          {observed(proxy(), oneProxy(), attempted(swap("proxy"))), minute, fallingBack(crrOfProxy)},
		"Auto creates a CRR if the image lacks the command":    {observed(pod(running("proxy").runs("/app/server")), oneProxy()), 0, terminating(crrOfProxy)},
		"Auto creates a CRR when there is no image":            {observed(proxy(), oneProxy(noImage)), 0, terminating(crrOfProxy)},
		"Auto creates a CRR when the image is not allowed":     {observed(proxy(), oneProxy(from(resolve.SourcePolicy)), withoutImages), 0, terminating(crrOfProxy)},
		"Auto writes phase Failed last":                        {observed(proxy(), oneProxy(noImage), withoutKruise), 0, terminating(failedOfProxy)},
		"Auto writes phase Failed when the others have failed": {observed(proxy(), oneProxy(), attempted(swap("proxy"), crrAttempt(1, "proxy"))), minute, fallingBack(failedOfProxy)},
		"Auto swaps the image of a sidecar that never started": {observed(pod(unpullable("proxy")), oneProxy()), 0, terminating(swapOfProxy)},
		"Auto swaps the image on a virtual node":               {observed(proxy(), oneProxy(), onVirtualNode), 0, terminating(swapOfProxy)},
		"Auto swaps the image on a node without the daemon":    {observed(proxy(), oneProxy(), onDaemonlessNode), 0, terminating(swapOfProxy)},
		"a pod that would end by its phase swaps the image":    {observed(proxy(), oneProxy(), withoutKruise, ending(v1alpha1.EndPodPhase)), 0, terminating(swapOfProxy)},
		"a phase Failed replaces the end in advance":           {observed(proxy(), oneProxy(noImage), withoutKruise, ending(v1alpha1.EndPodPhase)), 0, terminating(failedOfProxy)},
		"no phase Failed while a respected sidecar runs": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared CRR falls back to the image":      {observed(proxy(), oneProxy(mode(crr)), withoutKruise), 0, fallingBack(swapOfProxy)},
		"a declared PodPhase falls back to the image": {observed(proxy(), oneProxy(mode(podPhase)), withoutPodPhase), 0, fallingBack(swapOfProxy)},
		"a declared Image falls back to a CRR":        {observed(proxy(), oneProxy(mode(image), noImage)), 0, fallingBack(crrOfProxy)},
		"each of two sidecars by its own exit codes": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))),
			0, terminating(swapOfProxy, "CRR#1 [logs] within 1m0s"),
		},
		"each of two sidecars by its own mode": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(crr)), sidecar("proxy"))),
			0, terminating(swapOfProxy, "CRR#1 [logs] within 1m0s"),
		},
		"a declared PodPhase waits for the swap of the other": {observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy"))), 0, terminating(swapOfProxy)},
		"a main that never restarts under OnFailure": {
			observed(newPod(onFailure, exited("main", 1).restarting(corev1.ContainerRestartPolicyNever), running("proxy")), oneProxy()),
			0, terminating(swapOfProxy),
		},
	})
}
