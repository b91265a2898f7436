// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// An operator without the rights for a mode must not try it, and must say which flag is in the way.
func TestADisabledModeIsNeverUsed(t *testing.T) {
	for _, tc := range []struct {
		mode    v1alpha1.Mode
		disable func(*plan.Snapshot)
		reason  v1alpha1.Reason
		flag    string
	}{
		{v1alpha1.ModeCRR, func(s *plan.Snapshot) { s.Capabilities.CRRDisabled = true }, v1alpha1.ReasonCRRDisabled, "--crr=Disabled"},
		{v1alpha1.ModeImage, func(s *plan.Snapshot) { s.Capabilities.ImageDisabled = true }, v1alpha1.ReasonImageDisabled, "--image-swap=Disabled"},
		{v1alpha1.ModePodPhase, withoutPodPhase, v1alpha1.ReasonPodPhaseDisabled, "--pod-phase=Disabled"},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			pod := newPod(never, exited("main", 0), running("proxy"))
			decision := plan.Next(observed(pod, []resolve.Target{sidecar("proxy", mode(tc.mode), noFallback)}, tc.disable), done)
			if decision.Reason != tc.reason || len(decision.Actions) > 0 || !strings.Contains(decision.Message, tc.flag) {
				t.Errorf("got %s (%s) with %d actions, want %s that names %s and no action",
					decision.Reason, decision.Message, len(decision.Actions), tc.reason, tc.flag)
			}
			decision = plan.Next(observed(pod, []resolve.Target{sidecar("proxy")}, tc.disable), done)
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
