// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// later is a value that a newer definition of the policies may permit and this version does not know.
const later = "Later"

// A definition that is newer than the rest of the installation permits values that the operator does not know. It enforces
// what is not DryRun, falls back where that is not Disabled, and writes the phase where exit codes are not respected.
func TestAValueOfANewerDefinitionNeedsTheRightsOfWhatTheOperatorMakesOfIt(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	permitLaterValues(t)
	requests := v1alpha1.TerminationSettings{Mode: v1alpha1.ModeCRR, Fallback: v1alpha1.FallbackDisabled, ExitCodes: v1alpha1.ExitCodesRespect}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.PolicySpec)
		rights  []rbacv1.PolicyRule
		refused string // empty when the policy is accepted
	}{
		"enforcement of mode CRR":             {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = later }, refused: refusedCRR},
		"enforcement of mode CRR, with leave": {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = later }, rights: []rbacv1.PolicyRule{useModes}},
		"enforcement of mode Image": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.Mode = later, v1alpha1.ModeImage
		}, refused: refusedImage},
		"enforcement of mode PodPhase": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.Mode, spec.ExitCodes = later, v1alpha1.ModePodPhase, v1alpha1.ExitCodesIgnore
		}, refused: refusedPodPhase},
		"enforcement of prePull": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.PrePull = later, &v1alpha1.PrePull{}
		}, rights: []rbacv1.PolicyRule{createRequests}, refused: "the policy has images pulled ahead"},
		"fallback": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Fallback = later
		}, rights: []rbacv1.PolicyRule{createRequests}, refused: refusedImage},
		"exit codes": {change: func(spec *v1alpha1.PolicySpec) {
			spec.ExitCodes = later
		}, rights: []rbacv1.PolicyRule{createRequests}, refused: refusedPodPhase},
		"no such value": {change: func(*v1alpha1.PolicySpec) {}, rights: []rbacv1.PolicyRule{createRequests}},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
			policy.Spec.Sidecars, policy.Spec.TerminationSettings = []v1alpha1.Sidecar{{Name: "proxy"}}, requests
			tc.change(&policy.Spec.PolicySpec)
			expectRefusal(t, author(t, space, tc.rights...).Create(t.Context(), policy), tc.refused, space)
		})
	}
}

// permitLaterValues has the server accept any value of the spec's enumerations until the test ends.
func permitLaterValues(t *testing.T) {
	t.Helper()
	admin, _ := newClient(t)
	key := client.ObjectKey{Name: "sidecarterminationpolicies." + v1alpha1.GroupName}
	var enums map[string][]apiextensionsv1.JSON
	setEnums := func(ctx context.Context, next func(field string) []apiextensionsv1.JSON) error {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := admin.Get(ctx, key, definition); err != nil {
			return err
		}
		spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		before := map[string][]apiextensionsv1.JSON{}
		for _, field := range []string{"enforcement", "fallback", "exitCodes"} {
			property := spec.Properties[field]
			before[field], property.Enum = property.Enum, next(field)
			spec.Properties[field] = property
		}
		err := admin.Update(ctx, definition)
		if err == nil && enums == nil {
			enums = before
		}
		return err
	}
	// The server takes a new definition up a moment later.
	await := func(ctx context.Context, accepted bool) {
		testenv.Eventually(t, fmt.Sprintf("the server accepts other values: %t", accepted), func(context.Context) error {
			policy := imagePolicy("default")
			policy.Spec.Enforcement, policy.Spec.Fallback, policy.Spec.ExitCodes = later, later, later
			if err := admin.Create(ctx, policy, client.DryRunAll); (err == nil) != accepted {
				return fmt.Errorf("got error %w, want accepted: %t", err, accepted)
			}
			return nil
		})
	}
	testenv.Eventually(t, "the definition permits other values", func(ctx context.Context) error {
		return setEnums(ctx, func(string) []apiextensionsv1.JSON { return nil })
	})
	t.Cleanup(func() {
		if err := setEnums(context.Background(), func(field string) []apiextensionsv1.JSON { return enums[field] }); err != nil {
			t.Errorf("put the definition back: %v", err)
			return
		}
		await(context.Background(), false)
	})
	await(t.Context(), true)
}
