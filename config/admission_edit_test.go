// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// An edit requires the same permissions as creating the edited policy.
func TestAdmissionChecksEdits(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	for name, tc := range map[string]struct {
		patch  string
		denied string // empty if the edit is accepted
	}{
		"other mode":                           {patch: `{"spec":{"mode":"PodPhase"}}`, denied: deniedPodPhase},
		"mode removed, Auto by default":        {patch: `{"spec":{"mode":null}}`, denied: deniedAny},
		"fallback enabled":                     {patch: `{"spec":{"fallback":"Enabled"}}`, denied: deniedAny},
		"fallback removed, enabled by default": {patch: `{"spec":{"fallback":null}}`, denied: deniedAny},
		"other mode for one sidecar":           {patch: `{"spec":{"sidecars":[{"name":"proxy","mode":"CRR"}]}}`, denied: deniedAny},
		"added sidecar with other mode":        {patch: `{"spec":{"sidecars":[{"name":"proxy"},{"name":"logs","mode":"PodPhase"}]}}`, denied: deniedPodPhase},
		"mainContainers instead of sidecars":   {patch: `{"spec":{"sidecars":null,"mainContainers":["main"],"mode":"PodPhase"}}`, denied: deniedPodPhase},
		"prePull":                              {patch: `{"spec":{"prePull":{}}}`, denied: "the policy sets prePull"},
		"added sidecar with same mode":         {patch: `{"spec":{"sidecars":[{"name":"proxy"},{"name":"logs"}]}}`},
		"DryRun with every mode":               {patch: `{"spec":{"enforcement":"DryRun","mode":"Auto","fallback":"Enabled"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			c := author(t, space, patchPods)
			policy := imagePolicy(space)
			if err := c.Create(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			requireDenied(t, c.Patch(t.Context(), policy, mergePatch(tc.patch)), tc.denied, "")
		})
	}
	t.Run("server-side apply that creates", func(t *testing.T) {
		space := newNamespace(t)
		policy := client.RawPatch("application/apply-patch+yaml", []byte(
			`{"apiVersion":"sidecartermination.dev/v1alpha1","kind":"SidecarTerminationPolicy","metadata":{"name":"p"},"spec":{"podSelector":{},"sidecars":[{"name":"proxy"}]}}`))
		target := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
		requireDenied(t, author(t, space, patchPods).Patch(t.Context(), target, policy, client.FieldOwner("author")), deniedAny, "")
	})
}

// Each edit adds one mode only, so that the denial can come from no other mode.
func TestAdmissionChecksClusterPolicyEdits(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	space := newNamespace(t)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: space}}
	policy.Spec.PolicySpec = imagePolicy("").Spec.PolicySpec
	policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
	create(t, admin, policy)
	c := author(t, space, createRequests, patchPods, patchStatus, createPullJobs, useModes)
	grantEverywhere(t, writePolicies)
	useOf := func(modes ...string) rbacv1.PolicyRule {
		rule := useModes
		rule.ResourceNames = modes
		return rule
	}
	for name, tc := range map[string]struct {
		patch   string
		denied  string
		grant   rbacv1.PolicyRule // what the edit requires
		granted []string          // modes that the author can use before
	}{
		"mode CRR": {
			patch:  `{"spec":{"enforcement":"Enforce","mode":"CRR","exitCodes":"Respect"}}`,
			denied: "the policy may use mode CRR, and author cannot create containerrecreaterequests.apps.kruise.io in all namespaces", grant: useOf("CRR"),
		},
		"mode Image": {
			patch:  `{"spec":{"enforcement":"Enforce"}}`,
			denied: "the policy may use mode Image, and author cannot patch pods in all namespaces", grant: useOf("Image"),
		},
		"mode PodPhase": {
			patch:  `{"spec":{"enforcement":"Enforce","mode":"PodPhase"}}`,
			denied: "the policy may use mode PodPhase, and author cannot patch pods/status in all namespaces", grant: useOf("PodPhase"),
		},
		"mode and namespaceSelector": {
			patch:  `{"spec":{"enforcement":"Enforce","mode":"PodPhase","namespaceSelector":{"matchLabels":{"a":"b"}}}}`,
			denied: "the policy may use mode PodPhase, and author cannot patch pods/status in all namespaces", grant: useOf("PodPhase"),
		},
		"prePull": {
			patch:   `{"spec":{"enforcement":"Enforce","mode":"Auto","fallback":"Enabled","prePull":{}}}`,
			denied:  "the policy sets prePull, and author cannot create imagepulljobs.apps.kruise.io in all namespaces",
			granted: []string{"CRR", "Image", "PodPhase"}, grant: useOf("PrePull"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.granted != nil {
				grantEverywhere(t, useOf(tc.granted...))
			}
			edit := func(ctx context.Context) error {
				return c.Patch(ctx, policy.DeepCopy(), mergePatch(tc.patch), client.DryRunAll)
			}
			// Permissions of the previous case may remain effective for a moment.
			testenv.Eventually(t, "the edit to be denied", func(ctx context.Context) error {
				if err := edit(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.denied) {
					return fmt.Errorf("got error %w, want denial %q", err, tc.denied)
				}
				return nil
			})
			grantEverywhere(t, tc.grant)
			if err := edit(t.Context()); err != nil {
				t.Errorf("denied although granted: %v", err)
			}
		})
	}
}

// quickExitPaths decides whether a sidecar's image is swapped or the next mode is used, so changing it requires permissions.
func TestAdmissionChecksQuickExitPathEdits(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	const (
		everything = `{"spec":{"quickExitPaths":["*"]}}`
		forProxy   = `{"spec":{"sidecars":[{"name":"proxy","image":"quick-exit:v1","quickExitPaths":["*"]}]}}`
		nothing    = `{"spec":{"quickExitPaths":null}}`
		other      = `{"metadata":{"annotations":{"example.com/note":"*"},"labels":{"team":"etl"}}}`
	)
	only := func(mode v1alpha1.Mode) v1alpha1.PolicySpec {
		spec := onlyMode(mode)
		spec.Image = "quick-exit:v1"
		return spec
	}
	withRequests := only(v1alpha1.ModeCRR)
	withRequests.ExitCodes = v1alpha1.ExitCodesRespect
	for name, tc := range map[string]struct {
		settings v1alpha1.PolicySpec
		dryRun   bool
		paths    v1alpha1.QuickExitPath // before the edit
		rights   []rbacv1.PolicyRule
		patch    string
		denied   string // empty if the edit is accepted
	}{
		"set":                        {settings: only(v1alpha1.ModeImage), patch: everything, denied: deniedImage},
		"set for one sidecar":        {settings: only(v1alpha1.ModeImage), patch: forProxy, denied: deniedImage},
		"changed":                    {settings: only(v1alpha1.ModeImage), paths: "/app/server", patch: everything, denied: deniedImage},
		"removed":                    {settings: only(v1alpha1.ModeImage), paths: "/app/server", patch: nothing, denied: deniedImage},
		"author can patch pods":      {settings: only(v1alpha1.ModeImage), rights: []rbacv1.PolicyRule{patchPods}, patch: everything},
		"author can use the mode":    {settings: only(v1alpha1.ModeImage), rights: []rbacv1.PolicyRule{useImage}, patch: everything},
		"mode CRR":                   {settings: withRequests, patch: everything, denied: deniedCRR},
		"mode PodPhase":              {settings: only(v1alpha1.ModePodPhase), patch: everything, denied: deniedPodPhase},
		"DryRun":                     {settings: only(v1alpha1.ModeImage), dryRun: true, patch: everything},
		"unchanged":                  {settings: only(v1alpha1.ModeImage), paths: "*", patch: everything},
		"other annotation and label": {settings: only(v1alpha1.ModeImage), paths: "*", patch: other},
		"policy with fallback":       {settings: v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{Image: "quick-exit:v1"}}, rights: []rbacv1.PolicyRule{patchPods}, patch: everything, denied: deniedAny},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			admin, _ := newClient(t)
			policy := imagePolicy(space)
			setModes(policy, tc.settings)
			if tc.dryRun {
				policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			}
			if tc.paths != "" {
				policy.Spec.QuickExitPaths = []v1alpha1.QuickExitPath{tc.paths}
			}
			create(t, admin, policy)
			err := author(t, space, tc.rights...).Patch(t.Context(), policy, mergePatch(tc.patch))
			requireDenied(t, err, tc.denied, space)
		})
	}
}

// Policy authors cannot write the status, and a status update changes only the status.
func TestStatusWriteCannotChangeSpec(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	space := newNamespace(t)
	c := author(t, space, patchPods)
	policy := imagePolicy(space)
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/kept"]},"spec":{"mode":"PodPhase"},"status":{"matchedPods":3}}`))
	if err := c.Status().Patch(t.Context(), policy.DeepCopy(), patch); !apierrors.IsForbidden(err) {
		t.Errorf("author wrote the status: %v", err)
	}
	operator := as(t, operatorUser())
	written := policy.DeepCopy()
	written.Labels, written.Finalizers = map[string]string{"a": "b"}, []string{"example.com/kept"}
	written.Spec.Mode, written.Status.MatchedPods = v1alpha1.ModePodPhase, 3
	if err := operator.Status().Update(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	if written.Spec.Mode != v1alpha1.ModeImage || written.Labels != nil || written.Finalizers != nil || written.Status.MatchedPods != 3 {
		t.Errorf("status update changed more than the status: %+v", written)
	}
	written.Spec.Mode = v1alpha1.ModePodPhase
	if err := operator.Update(t.Context(), written); !apierrors.IsForbidden(err) {
		t.Errorf("operator updated the policy: %v", err)
	}
}

// imagePolicy returns a policy that requires permission to patch pods only.
func imagePolicy(space string) *v1alpha1.SidecarTerminationPolicy {
	policy := newPolicy(space)
	policy.Spec.Mode, policy.Spec.Fallback = v1alpha1.ModeImage, v1alpha1.FallbackDisabled
	return policy
}
