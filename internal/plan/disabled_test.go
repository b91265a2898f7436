// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// An operator does not try a disabled mode, and names the flag that disables it.
func TestDisabledModeIsUnused(t *testing.T) {
	for _, tc := range []struct {
		mode    v1alpha1.Mode
		disable func(*plan.Snapshot)
		reason  v1alpha1.Reason
		flag    string
	}{
		{crr, func(s *plan.Snapshot) { s.Capabilities.CRR = false }, v1alpha1.ReasonModeDisabled, "--crr=Disabled"},
		{image, func(s *plan.Snapshot) { s.Capabilities.Image = false }, v1alpha1.ReasonModeDisabled, "--image-swap=Disabled"},
		{podPhase, withoutPodPhase, v1alpha1.ReasonModeDisabled, "--pod-phase=Disabled"},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			pod := finishedMain(never)
			decision := plan.Next(observed(pod, oneProxy(mode(tc.mode), noFallback), tc.disable), done)
			if decision.Reason != tc.reason || len(decision.Actions) > 0 || !strings.Contains(decision.Message, tc.flag) {
				t.Errorf("got %s (%s) with %d actions, want %s that names %s and no action",
					decision.Reason, decision.Message, len(decision.Actions), tc.reason, tc.flag)
			}
			decision = plan.Next(observed(pod, oneProxy(), tc.disable), done)
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
