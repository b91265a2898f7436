// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// later is an enum value of a newer CRD that this version does not know.
const later = "Later"

// With a newer CRD, policies may have values that the operator does not know. It treats unknown values as Enforce, Enabled and
// Ignore, so admission must require the same permissions.
func TestAdmissionUnknownEnumValues(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	permitLaterValues(t)
	crrOnly := onlyMode(v1alpha1.ModeCRR)
	crrOnly.ExitCodes = v1alpha1.ExitCodesRespect
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PolicySpec)
		rights []rbacv1.PolicyRule
		denied string // empty if the policy is accepted
	}{
		"enforcement with CRR":                {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = later }, denied: deniedCRR},
		"enforcement with CRR, can use modes": {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = later }, rights: []rbacv1.PolicyRule{useModes}},
		"enforcement with Image": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.Mode = later, v1alpha1.ModeImage
		}, denied: deniedImage},
		"enforcement with PodPhase": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.Mode, spec.ExitCodes = later, v1alpha1.ModePodPhase, v1alpha1.ExitCodesIgnore
		}, denied: deniedPodPhase},
		"enforcement with prePull": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Enforcement, spec.PrePull = later, &v1alpha1.PrePull{}
		}, rights: []rbacv1.PolicyRule{createRequests}, denied: "the policy sets prePull"},
		"fallback": {change: func(spec *v1alpha1.PolicySpec) {
			spec.Fallback = later
		}, rights: []rbacv1.PolicyRule{createRequests}, denied: deniedImage},
		"exitCodes": {change: func(spec *v1alpha1.PolicySpec) {
			spec.ExitCodes = later
		}, rights: []rbacv1.PolicyRule{createRequests}, denied: deniedPodPhase},
		"known values": {change: func(*v1alpha1.PolicySpec) {}, rights: []rbacv1.PolicyRule{createRequests}},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := newPolicy(space)
			setModes(policy, crrOnly)
			tc.change(&policy.Spec.PolicySpec)
			requireDenied(t, author(t, space, tc.rights...).Create(t.Context(), policy), tc.denied, space)
		})
	}
}

// permitLaterValues removes the enums of the spec from the CRD until the test ends.
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
	// The server applies a changed CRD with a delay.
	await := func(ctx context.Context, accepted bool) {
		testenv.Eventually(t, fmt.Sprintf("unknown values to be accepted: %t", accepted), func(context.Context) error {
			policy := imagePolicy("default")
			policy.Spec.Enforcement, policy.Spec.Fallback, policy.Spec.ExitCodes = later, later, later
			if err := admin.Create(ctx, policy, client.DryRunAll); (err == nil) != accepted {
				return fmt.Errorf("got error %w, want accepted: %t", err, accepted)
			}
			return nil
		})
	}
	testenv.Eventually(t, "the CRD without enums to be written", func(ctx context.Context) error {
		return setEnums(ctx, func(string) []apiextensionsv1.JSON { return nil })
	})
	t.Cleanup(func() {
		if err := setEnums(context.Background(), func(field string) []apiextensionsv1.JSON { return enums[field] }); err != nil {
			t.Errorf("restore the CRD: %v", err)
			return
		}
		await(context.Background(), false)
	})
	await(t.Context(), true)
}
