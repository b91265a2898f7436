// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func unknownFallback(t *resolve.Sidecar)  { t.Fallback = "Sometimes" }
func unknownExitCodes(t *resolve.Sidecar) { t.ExitCodes = "RespectUnlessKilled" }

// TestUnknownSettings covers values that only a newer CRD than the operator's accepts.
func TestUnknownSettings(t *testing.T) {
	pod := func(sidecars ...container) *corev1.Pod {
		return newPod(never, append([]container{exited("main", 0)}, sidecars...)...)
	}
	one := func(changes ...func(*resolve.Sidecar)) plan.Snapshot {
		return observed(pod(running("proxy")), oneProxy(changes...))
	}

	runScenarios(t, map[string]scenario{
		"an unknown mode is followed by the next":          {one(mode("Freeze")), 0, fallingBack(phaseBeforeCRR)},
		"an unknown mode without fallback is stuck":        {one(mode("Freeze"), noFallback), 0, stuck(v1alpha1.ReasonUnknownSetting)},
		"an unknown fallback leaves a usable mode":         {one(mode(podPhase), unknownFallback), 0, terminating(phaseOfProxy)},
		"an unknown fallback leaves Auto":                  {one(unknownFallback), 0, terminating(phaseBeforeCRR)},
		"an unknown fallback does not mean Enabled":        {one(mode(image), noImage, unknownFallback), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"an unknown fallback keeps a declared CRR":         {observed(pod(running("proxy")), oneProxy(mode(crr), unknownFallback), withoutPodPhase), 0, terminating(crrOfProxy)},
		"unknown exit codes are stuck":                     {one(unknownExitCodes), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"a declared mode with unknown exit codes is stuck": {one(mode(podPhase), noFallback, unknownExitCodes), 0, stuck(v1alpha1.ReasonUnknownSetting)},
		"no phase for a sidecar with unknown exit codes": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", unknownExitCodes), sidecar("proxy"))),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a sidecar with unknown exit codes that has failed counts": {
			observed(pod(exited("logs", 3), running("proxy")), sidecarsOf(sidecar("logs", unknownExitCodes), sidecar("proxy", noImage)), withoutKruise),
			0, terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
	})
}

// The message of a stuck pod names the unknown value.
func TestUnknownSettingMessage(t *testing.T) {
	for want, change := range map[string]func(*resolve.Sidecar){
		`mode "Freeze"`:                   mode("Freeze"),
		`fallback "Sometimes"`:            unknownFallback,
		`exitCodes "RespectUnlessKilled"`: unknownExitCodes,
	} {
		sidecar := sidecar("proxy", mode(image), noImage, change)
		decision := plan.Next(observed(finishedMain(never), sidecarsOf(sidecar), withoutKruise, withoutPodPhase), done)
		if decision.Stage != plan.StageStuck || !strings.Contains(decision.Message, want) || !strings.Contains(decision.Message, "upgrade the operator") {
			t.Errorf("got %s: %s, want it to name %s", decision.Stage, decision.Message, want)
		}
	}
}
