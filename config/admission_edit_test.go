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
	"github.com/sidecar-termination/operator/internal/testenv"
)

// A policy that its author was allowed to make is no way to one that the author would have been refused.
func TestAnAllowedPolicyCannotBeEditedIntoARefusedOne(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	for name, tc := range map[string]struct {
		patch   string
		refused string // empty when the edit is accepted
	}{
		"another mode":                        {patch: `{"spec":{"mode":"PodPhase"}}`, refused: refusedPodPhase},
		"the mode taken out, which is Auto":   {patch: `{"spec":{"mode":null}}`, refused: refusedAny},
		"fallback to the other modes":         {patch: `{"spec":{"fallback":"Enabled"}}`, refused: refusedAny},
		"the fallback taken out":              {patch: `{"spec":{"fallback":null}}`, refused: refusedAny},
		"another mode for one sidecar":        {patch: `{"spec":{"sidecars":[{"name":"proxy","mode":"CRR"}]}}`, refused: refusedAny},
		"fallback for one sidecar":            {patch: `{"spec":{"sidecars":[{"name":"proxy","fallback":"Enabled"}]}}`, refused: refusedAny},
		"one more sidecar with a mode":        {patch: `{"spec":{"sidecars":[{"name":"proxy"},{"name":"logs","mode":"PodPhase"}]}}`, refused: refusedPodPhase},
		"main containers instead of sidecars": {patch: `{"spec":{"sidecars":null,"mainContainers":["main"],"mode":"PodPhase"}}`, refused: refusedPodPhase},
		"images pulled ahead":                 {patch: `{"spec":{"prePull":{}}}`, refused: "the policy has images pulled ahead"},
		"one more sidecar, by the same mode":  {patch: `{"spec":{"sidecars":[{"name":"proxy"},{"name":"logs"}]}}`},
		"a trial of every mode":               {patch: `{"spec":{"enforcement":"DryRun","mode":"Auto","fallback":"Enabled"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			c := author(t, space, patchPods)
			policy := imagePolicy(space)
			if err := c.Create(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			expectRefusal(t, c.Patch(t.Context(), policy, client.RawPatch("application/merge-patch+json", []byte(tc.patch))), tc.refused, "")
		})
	}
	t.Run("by a patch that creates", func(t *testing.T) {
		space := newNamespace(t)
		policy := client.RawPatch("application/apply-patch+yaml", []byte(
			`{"apiVersion":"sidecartermination.dev/v1alpha1","kind":"SidecarTerminationPolicy","metadata":{"name":"p"},"spec":{"podSelector":{},"sidecars":[{"name":"proxy"}]}}`))
		target := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
		expectRefusal(t, author(t, space, patchPods).Patch(t.Context(), target, policy, client.FieldOwner("author")), refusedAny, "")
	})
}

// Each edit leads to one mode alone, so that no other one's refusal stands in for its own.
func TestTheClusterKindIsHeldToItsAuthorsRightsWhenItIsEdited(t *testing.T) {
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
	leave := func(modes ...string) rbacv1.PolicyRule {
		rule := useModes
		rule.ResourceNames = modes
		return rule
	}
	for name, tc := range map[string]struct {
		patch   string
		refused string
		leave   rbacv1.PolicyRule // what the edit needs
		given   []string          // modes that the author may use from the start
	}{
		"mode CRR": {
			patch:   `{"spec":{"enforcement":"Enforce","mode":"CRR","exitCodes":"Respect"}}`,
			refused: "the policy can lead to mode CRR, and author may not create containerrecreaterequests.apps.kruise.io in all namespaces", leave: leave("CRR"),
		},
		"mode Image": {
			patch:   `{"spec":{"enforcement":"Enforce"}}`,
			refused: "the policy can lead to mode Image, and author may not patch pods in all namespaces", leave: leave("Image"),
		},
		"mode PodPhase": {
			patch:   `{"spec":{"enforcement":"Enforce","mode":"PodPhase"}}`,
			refused: "the policy can lead to mode PodPhase, and author may not patch pods/status in all namespaces", leave: leave("PodPhase"),
		},
		"another selection besides": {
			patch:   `{"spec":{"enforcement":"Enforce","mode":"PodPhase","namespaceSelector":{"matchLabels":{"a":"b"}}}}`,
			refused: "the policy can lead to mode PodPhase, and author may not patch pods/status in all namespaces", leave: leave("PodPhase"),
		},
		"prePull besides": {
			patch:   `{"spec":{"enforcement":"Enforce","mode":"Auto","fallback":"Enabled","prePull":{}}}`,
			refused: "the policy has images pulled ahead, and author may not create imagepulljobs.apps.kruise.io in all namespaces",
			given:   []string{"CRR", "Image", "PodPhase"}, leave: leave("PrePull"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.given != nil {
				grantEverywhere(t, leave(tc.given...))
			}
			edit := func(ctx context.Context) error {
				return c.Patch(ctx, policy.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(tc.patch)), client.DryRunAll)
			}
			// The rights of another case may hold for a moment.
			testenv.Eventually(t, "the edit is refused", func(ctx context.Context) error {
				if err := edit(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused) {
					return fmt.Errorf("got error %w, want it refused with %q", err, tc.refused)
				}
				return nil
			})
			grantEverywhere(t, tc.leave)
			if err := edit(t.Context()); err != nil {
				t.Errorf("refused with leave for it: %v", err)
			}
		})
	}
}

// The field says which commands images cover, and so whether a sidecar's image is swapped or another mode follows.
func TestWhatImagesCoverIsChangedByThoseOnlyWhoMayChangeThePolicy(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	const (
		everything = `{"spec":{"quickExitPaths":["*"]}}`
		forProxy   = `{"spec":{"sidecars":[{"name":"proxy","image":"quick-exit:v1","quickExitPaths":["*"]}]}}`
		nothing    = `{"spec":{"quickExitPaths":null}}`
		other      = `{"metadata":{"annotations":{"example.com/note":"*"},"labels":{"team":"etl"}}}`
	)
	only := func(mode v1alpha1.Mode) v1alpha1.TerminationSettings {
		return v1alpha1.TerminationSettings{Mode: mode, Fallback: v1alpha1.FallbackDisabled, Image: "quick-exit:v1"}
	}
	withRequests := only(v1alpha1.ModeCRR)
	withRequests.ExitCodes = v1alpha1.ExitCodesRespect
	for name, tc := range map[string]struct {
		settings v1alpha1.TerminationSettings
		dryRun   bool
		paths    v1alpha1.QuickExitPath // of the policy before
		rights   []rbacv1.PolicyRule
		patch    string
		refused  string // empty when the edit is accepted
	}{
		"said for the first time":          {settings: only(v1alpha1.ModeImage), patch: everything, refused: refusedImage},
		"of one sidecar":                   {settings: only(v1alpha1.ModeImage), patch: forProxy, refused: refusedImage},
		"changed":                          {settings: only(v1alpha1.ModeImage), paths: "/app/server", patch: everything, refused: refusedImage},
		"taken out":                        {settings: only(v1alpha1.ModeImage), paths: "/app/server", patch: nothing, refused: refusedImage},
		"by who may patch pods":            {settings: only(v1alpha1.ModeImage), rights: []rbacv1.PolicyRule{patchPods}, patch: everything},
		"by who may use the mode":          {settings: only(v1alpha1.ModeImage), rights: []rbacv1.PolicyRule{useImage}, patch: everything},
		"so that requests follow":          {settings: withRequests, patch: everything, refused: refusedCRR},
		"so that the phase is written":     {settings: only(v1alpha1.ModePodPhase), patch: everything, refused: refusedPodPhase},
		"of a policy that does nothing":    {settings: only(v1alpha1.ModeImage), dryRun: true, patch: everything},
		"as it was":                        {settings: only(v1alpha1.ModeImage), paths: "*", patch: everything},
		"another annotation, and a label":  {settings: only(v1alpha1.ModeImage), paths: "*", patch: other},
		"of a policy that leads to others": {settings: v1alpha1.TerminationSettings{Image: "quick-exit:v1"}, rights: []rbacv1.PolicyRule{patchPods}, patch: everything, refused: refusedAny},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			admin, _ := newClient(t)
			policy := imagePolicy(space)
			policy.Spec.TerminationSettings = tc.settings
			if tc.dryRun {
				policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			}
			if tc.paths != "" {
				policy.Spec.QuickExitPaths = []v1alpha1.QuickExitPath{tc.paths}
			}
			create(t, admin, policy)
			err := author(t, space, tc.rights...).Patch(t.Context(), policy, client.RawPatch("application/merge-patch+json", []byte(tc.patch)))
			expectRefusal(t, err, tc.refused, space)
		})
	}
}

// The status says what the operator did. Whoever may write policies may not write it, and whoever may write it changes
// nothing else by it.
func TestTheStatusOfAPolicyIsNoWayToItsSpec(t *testing.T) {
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
		t.Errorf("the author of a policy wrote its status: %v", err)
	}
	operator := as(t, operatorUser())
	written := policy.DeepCopy()
	written.Labels, written.Finalizers = map[string]string{"a": "b"}, []string{"example.com/kept"}
	written.Spec.Mode, written.Status.MatchedPods = v1alpha1.ModePodPhase, 3
	if err := operator.Status().Update(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	if written.Spec.Mode != v1alpha1.ModeImage || written.Labels != nil || written.Finalizers != nil || written.Status.MatchedPods != 3 {
		t.Errorf("the operator wrote more than the status: %+v", written)
	}
	written.Spec.Mode = v1alpha1.ModePodPhase
	if err := operator.Update(t.Context(), written); !apierrors.IsForbidden(err) {
		t.Errorf("the operator wrote a policy: %v", err)
	}
}

// imagePolicy returns a policy for which the right to patch pods is enough.
func imagePolicy(space string) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.Mode, policy.Spec.Fallback = v1alpha1.ModeImage, v1alpha1.FallbackDisabled
	return policy
}
