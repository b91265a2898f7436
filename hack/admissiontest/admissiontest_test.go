// SPDX-License-Identifier: Apache-2.0

package admissiontest_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/admissiontest"
)

// With a newer CRD, policies may have values that the admission policies do not know. They count as Enforce and Enabled.
func TestUnknownValuesOfPoliciesNeedPermissions(t *testing.T) {
	const later = "Later"
	settings := func(mode v1alpha1.Mode) v1alpha1.TerminationSettings { return v1alpha1.TerminationSettings{Mode: mode} }
	for name, spec := range map[string]v1alpha1.PolicySpec{
		"crr":       {Enforcement: later, TerminationSettings: settings(v1alpha1.ModeCRR), Fallback: v1alpha1.FallbackDisabled},
		"image":     {Enforcement: later, TerminationSettings: settings(v1alpha1.ModeImage), Fallback: v1alpha1.FallbackDisabled},
		"pod-phase": {TerminationSettings: settings(v1alpha1.ModeCRR), Fallback: later},
		"pre-pull":  {Enforcement: later, PrePull: &v1alpha1.PrePull{}},
	} {
		t.Run(name, func(t *testing.T) {
			shipped, err := admissiontest.Shipped[admissionv1.ValidatingAdmissionPolicy]("sidecar-termination-mode-" + name)
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := admissiontest.CompileValidating(shipped)
			if err != nil {
				t.Fatal(err)
			}
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "p"}}
			policy.Spec.PolicySpec = spec
			policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
			allowed, message, err := compiled.Validate(t.Context(), admissiontest.Request{
				Operation: admission.Create, Resource: v1alpha1.GroupVersion.WithResource("sidecarterminationpolicies"), New: policy,
				User: &user.DefaultInfo{Name: "jane"},
			})
			if allowed || err != nil || !strings.Contains(message, "jane cannot") {
				t.Errorf("allowed: %t, message %q, error %v", allowed, message, err)
			}
		})
	}
}
