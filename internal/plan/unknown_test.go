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

func unknownFallback(t *resolve.Target)  { t.Fallback = "Sometimes" }
func unknownExitCodes(t *resolve.Target) { t.ExitCodes = "RespectUnlessKilled" }

// TestUnknownSettings covers values that a CRD newer than the operator lets through.
func TestUnknownSettings(t *testing.T) {
	pod := func(sidecars ...container) *corev1.Pod {
		return newPod(never, append([]container{exited("main", 0)}, sidecars...)...)
	}
	one := func(changes ...func(*resolve.Target)) plan.Snapshot {
		return observed(pod(running("proxy")), targets(sidecar("proxy", changes...)))
	}

	runScenarios(t, map[string]scenario{
		"an unknown mode is followed by the next": {
			snapshot: one(mode("Freeze")),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"an unknown mode without fallback is stuck": {
			snapshot: one(mode("Freeze"), noFallback),
			want:     stuck(v1alpha1.ReasonUnknownSetting),
		},
		"an unknown fallback leaves a usable mode": {
			snapshot: one(mode(podPhase), unknownFallback),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"an unknown fallback leaves Auto": {
			snapshot: one(unknownFallback),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"an unknown fallback is not taken for Enabled": {
			snapshot: one(mode(image), noImage, unknownFallback),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"an unknown fallback has no declared CRR give way": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr), unknownFallback)), withoutPodPhase),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"unknown exit codes are stuck": {
			snapshot: one(unknownExitCodes),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared mode with unknown exit codes is stuck": {
			snapshot: one(mode(podPhase), noFallback, unknownExitCodes),
			want:     stuck(v1alpha1.ReasonUnknownSetting),
		},
		"no phase is written over a sidecar with unknown exit codes": {
			snapshot: observed(pod(running("logs"), running("proxy")), targets(sidecar("logs", unknownExitCodes), sidecar("proxy"))),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a sidecar with unknown exit codes that has failed counts": {
			snapshot: observed(pod(exited("logs", 3), running("proxy")),
				targets(sidecar("logs", unknownExitCodes), sidecar("proxy", noImage)), withoutKruise),
			want: terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
	})
}

// Whoever reads why a pod is stuck must learn which value is meant.
func TestUnknownSettingIsNamed(t *testing.T) {
	for want, change := range map[string]func(*resolve.Target){
		`mode "Freeze"`:                   mode("Freeze"),
		`fallback "Sometimes"`:            unknownFallback,
		`exitCodes "RespectUnlessKilled"`: unknownExitCodes,
	} {
		target := sidecar("proxy", mode(image), noImage, change)
		decision := plan.Next(observed(newPod(never, exited("main", 0), running("proxy")), targets(target), withoutKruise, withoutPodPhase), done)
		if decision.Stage != plan.StageStuck || !strings.Contains(decision.Message, want) || !strings.Contains(decision.Message, "upgrade the operator") {
			t.Errorf("got %s: %s, want it to name %s", decision.Stage, decision.Message, want)
		}
	}
}
