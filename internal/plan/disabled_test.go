// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// An operator does not try a disabled mode, and names the flag that disables it.
func TestDisabledModeIsUnused(t *testing.T) {
	for _, tc := range []struct {
		mode    v1alpha1.Mode
		disable func(*plan.Snapshot)
		reason  v1alpha1.Reason
		flag    string
	}{
		{v1alpha1.ModeCRR, func(s *plan.Snapshot) { s.Capabilities.CRR = false }, v1alpha1.ReasonModeDisabled, "--crr=Disabled"},
		{v1alpha1.ModeImage, func(s *plan.Snapshot) { s.Capabilities.Image = false }, v1alpha1.ReasonModeDisabled, "--image-swap=Disabled"},
		{v1alpha1.ModePodPhase, withoutPodPhase, v1alpha1.ReasonModeDisabled, "--pod-phase=Disabled"},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			pod := newPod(never, exited("main", 0), running("proxy"))
			decision := plan.Next(observed(pod, []resolve.Sidecar{sidecar("proxy", mode(tc.mode), noFallback)}, tc.disable), done)
			if decision.Reason != tc.reason || len(decision.Actions) > 0 || !strings.Contains(decision.Message, tc.flag) {
				t.Errorf("got %s (%s) with %d actions, want %s that names %s and no action",
					decision.Reason, decision.Message, len(decision.Actions), tc.reason, tc.flag)
			}
			decision = plan.Next(observed(pod, []resolve.Sidecar{sidecar("proxy")}, tc.disable), done)
			for _, action := range decision.Actions {
				if action.Mode == tc.mode {
					t.Errorf("Auto uses mode %s although it is disabled", tc.mode)
				}
			}
			if len(decision.Actions) == 0 {
				t.Errorf("Auto does nothing: %s (%s)", decision.Reason, decision.Message)
			}
		})
	}
}
