// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestImagePullRiskHint(t *testing.T) {
	declared := func(m v1alpha1.Mode) func(w *fixture) {
		return func(w *fixture) { w.policy(mode(m), "proxy") }
	}
	for name, tc := range map[string]struct {
		use      plan.PodPhaseUse
		declared func(w *fixture)
		want     string // first words of the hint
	}{
		"phase enabled":          {plan.PodPhaseEnabled, declared(v1alpha1.ModeImage), "set mode to Auto, which uses PodPhase there, or pull"},
		"phase as a last resort": {plan.PodPhaseLastResort, declared(v1alpha1.ModeImage), "set mode to PodPhase, or pull"},
		"Auto and last resort":   {plan.PodPhaseLastResort, declared(v1alpha1.ModeAuto), "set mode to PodPhase, or pull"},
		"phase disabled":         {plan.PodPhaseDisabled, declared(v1alpha1.ModeImage), "pull the image in advance"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.declared(w)
			w.operator.Resolve.Image, w.operator.Capabilities.PodPhase = "quick-exit:v1", tc.use
			w.cluster.Kruise = ptr.To(false)
			findings := explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings
			i := slices.IndexFunc(findings, func(f explain.Finding) bool { return f.Reason == v1alpha1.ReasonImagePullRisk })
			if i < 0 || !strings.HasPrefix(findings[i].Hint, tc.want) {
				t.Errorf("findings %+v, want a hint %q", findings, tc.want)
			}
		})
	}
}
