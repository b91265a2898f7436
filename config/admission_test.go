// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

type rules = []rbacv1.PolicyRule

// Permissions that modes require, and permissions to use modes through policies.
var (
	patchPods      = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}
	patchStatus    = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}}
	createRequests = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"containerrecreaterequests"}, Verbs: []string{"create"}}
	createPullJobs = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"imagepulljobs"}, Verbs: []string{"create"}}
	useModes       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}}
	useImage       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}, ResourceNames: []string{"Image"}}
	writePolicies  = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Verbs: []string{"get", "create", "update", "patch"},
		Resources: []string{"sidecarterminationpolicies", "clustersidecarterminationpolicies"}}
	allModes = rules{createRequests, patchPods, patchStatus}
	// everythingOfPolicies is a common wildcard rule for policies.
	everythingOfPolicies = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}}
)

// Parts of the denials. If several policies deny a request, the server returns one of them.
const (
	deniedAny      = "the policy may use mode"
	deniedCRR      = "the policy may use mode CRR, and author cannot create containerrecreaterequests.apps.kruise.io in namespace "
	deniedImage    = "the policy may use mode Image, and author cannot patch pods in namespace "
	deniedByRoles  = `User "author" cannot create resource "sidecarterminationpolicies"`
	deniedPodPhase = "the policy may use mode PodPhase, and author cannot patch pods/status in namespace "
	deniedPrePull  = "the policy sets prePull, and author cannot create imagepulljobs.apps.kruise.io in namespace "
)

// Specs of policies that may use one mode only.
const (
	imageOnly    = "{mode: Image, fallback: Disabled}"
	podPhaseOnly = "{mode: PodPhase, fallback: Disabled}"
	crrOnly      = "{mode: CRR, fallback: Disabled}"
)

// policyWrite is a write of a policy by an author with permissions in the policy's namespace.
type policyWrite struct {
	rights rules    // in addition to the permission to write policies
	roles  []string // instead: installed ClusterRoles
	spec   string   // YAML, merged into the spec of newPolicy
	// edit is a merge patch of the spec in YAML, of a policy that an administrator has created. If empty, the author creates the policy.
	edit   string
	denied string // empty if the write is accepted
}

func testPolicyWrites(t *testing.T, writes map[string]policyWrite) {
	t.Helper()
	admin, _ := newClient(t)
	for name, tc := range writes {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := newPolicy(space)
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &policy.Spec); err != nil {
				t.Fatal(err)
			}
			rights := tc.rights
			if tc.roles == nil {
				rights = append(rules{writePolicies}, rights...)
			}
			c := authorIn(t, space, tc.roles, rights)
			if tc.edit == "" {
				requireDenied(t, c.Create(t.Context(), policy), tc.denied, space)
				return
			}
			create(t, admin, policy)
			requireDenied(t, c.Patch(t.Context(), policy, patchOf(types.MergePatchType, "spec: "+tc.edit)), tc.denied, space)
		})
	}
}

// internal/plan compares the admission policies with package resolve for random policies and authors. These show what only a server
// does: it asks RBAC, and knows which writes are edits.
func TestAdmissionRequiresModePermissions(t *testing.T) {
	installAdmission(t)
	testPolicyWrites(t, map[string]policyWrite{
		"defaults, all permissions":       {rights: allModes},
		"defaults, cannot create CRRs":    {rights: rules{patchPods, patchStatus}, denied: deniedCRR},
		"defaults, cannot patch pods":     {rights: rules{createRequests, patchStatus}, denied: deniedImage},
		"defaults, cannot patch status":   {rights: rules{createRequests, patchPods}, denied: deniedPodPhase},
		"defaults, can use all modes":     {rights: rules{useModes}},
		"defaults, wildcard on policies":  {rights: rules{everythingOfPolicies}, denied: deniedAny},
		"defaults, can use Image only":    {rights: rules{useImage, patchStatus}, denied: deniedCRR},
		"Image only, can use Image":       {rights: rules{useImage}, spec: imageOnly},
		"Image only, can patch pods":      {rights: rules{patchPods}, spec: imageOnly},
		"PodPhase only, can patch status": {rights: rules{patchStatus}, spec: podPhaseOnly},
		"CRR only, can create CRRs":       {rights: rules{createRequests}, spec: crrOnly},
		"DryRun, no permissions":          {spec: "enforcement: DryRun"},
		"prePull, no permission":          {rights: allModes, spec: "prePull: {}", denied: deniedPrePull},
		"prePull, can create pull jobs":   {rights: append(allModes, createPullJobs), spec: "prePull: {}"},
		"prePull, can use PrePull":        {rights: rules{useModes}, spec: "prePull: {}"},
		"prePull, wildcard on policies":   {rights: append(allModes, everythingOfPolicies), spec: "prePull: {}", denied: deniedPrePull},
		"mode of sidecar, may patch pods": {
			rights: rules{patchPods}, spec: "{mode: Image, fallback: Disabled, sidecars: [{name: proxy, mode: PodPhase}]}", denied: deniedPodPhase,
		},
		"other mode":                    {rights: rules{patchPods}, spec: imageOnly, edit: "{mode: PodPhase}", denied: deniedPodPhase},
		"mode removed, Auto by default": {rights: rules{patchPods}, spec: imageOnly, edit: "{mode: null}", denied: deniedAny},
		"added sidecar with same mode":  {rights: rules{patchPods}, spec: imageOnly, edit: "{sidecars: [{name: proxy}, {name: logs}]}"},
		"DryRun changed to Enforce":     {spec: "enforcement: DryRun", edit: "{enforcement: Enforce}", denied: deniedAny},
		"selector of other's policy":    {edit: "{podSelector: {matchLabels: {a: b}}}", denied: deniedAny},
		"label of other's policy":       {edit: "{}\nmetadata: {labels: {team: etl}}"},
		"quickExitPaths of other's policy": {
			spec: "{mode: Image, fallback: Disabled, image: 'quick-exit:v1'}", edit: "{quickExitPaths: ['*']}", denied: deniedImage,
		},
	})
	t.Run("server-side apply that creates", func(t *testing.T) {
		space := newNamespace(t)
		policy := patchOf(types.ApplyPatchType,
			"{apiVersion: sidecartermination.dev/v1alpha1, kind: SidecarTerminationPolicy, metadata: {name: p}, spec: {podSelector: {}, sidecars: [{name: proxy}]}}")
		requireDenied(t, author(t, space, patchPods).Patch(t.Context(), newPolicy(space), policy, client.FieldOwner("author")), deniedAny, "")
	})
	t.Run("permissions in other namespace", func(t *testing.T) {
		space, other := newNamespace(t), newNamespace(t)
		c := author(t, space)
		grant(t, other, allModes...)
		requireDenied(t, c.Create(t.Context(), newPolicy(space)), deniedAny, "")
	})
}

// A cluster policy requires permissions in all namespaces. Each edit adds one mode only, so that the denial can come from no other mode.
func TestAdmissionChecksClusterPolicies(t *testing.T) {
	installAdmission(t)
	admin, _ := newClient(t)
	space := newNamespace(t)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: space}}
	if err := yaml.Unmarshal([]byte("{sidecars: [{name: proxy}], mode: Image, fallback: Disabled, enforcement: DryRun}"), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	create(t, admin, policy)
	c := author(t, space, createRequests, patchPods, patchStatus, createPullJobs, useModes)
	grantEverywhere(t, writePolicies)
	useOf := func(modes ...string) rbacv1.PolicyRule {
		rule := useModes
		rule.ResourceNames = modes
		return rule
	}
	for name, tc := range map[string]struct {
		edit    string // of the spec
		created bool   // the author creates a policy with the edited spec
		denied  string
		grant   rbacv1.PolicyRule // what the edit requires
		granted []string          // modes that the author can use before
	}{
		"mode CRR": {
			edit:   "{mode: CRR}",
			denied: "the policy may use mode CRR, and author cannot create containerrecreaterequests.apps.kruise.io in all namespaces", grant: useOf("CRR"),
		},
		"mode Image": {denied: "the policy may use mode Image, and author cannot patch pods in all namespaces", grant: useOf("Image")},
		"mode Image, created": {
			created: true, denied: "the policy may use mode Image, and author cannot patch pods in all namespaces", grant: patchPods,
		},
		"mode PodPhase": {
			edit:   "{mode: PodPhase}",
			denied: "the policy may use mode PodPhase, and author cannot patch pods/status in all namespaces", grant: useOf("PodPhase"),
		},
		"mode and namespaceSelector": {
			edit:   "{mode: PodPhase, namespaceSelector: {matchLabels: {a: b}}}",
			denied: "the policy may use mode PodPhase, and author cannot patch pods/status in all namespaces", grant: useOf("PodPhase"),
		},
		"prePull": {
			edit:    "{mode: Auto, fallback: Enabled, prePull: {}}",
			denied:  "the policy sets prePull, and author cannot create imagepulljobs.apps.kruise.io in all namespaces",
			granted: []string{"CRR", "Image", "PodPhase"}, grant: useOf("PrePull"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.granted != nil {
				grantEverywhere(t, useOf(tc.granted...))
			}
			edited := policy.DeepCopy()
			if err := yaml.Unmarshal([]byte(tc.edit), &edited.Spec); err != nil {
				t.Fatal(err)
			}
			edited.Spec.Enforcement = v1alpha1.EnforcementEnforce
			write := func(ctx context.Context) error { return c.Update(ctx, edited.DeepCopy(), client.DryRunAll) }
			if tc.created {
				edited.ObjectMeta = metav1.ObjectMeta{Name: space + "-created"}
				write = func(ctx context.Context) error { return c.Create(ctx, edited.DeepCopy(), client.DryRunAll) }
			}
			// Permissions of the previous case may remain effective for a moment.
			awaitDenied(t, tc.denied, write)
			grantEverywhere(t, tc.grant)
			if err := write(t.Context()); err != nil {
				t.Errorf("denied although granted: %v", err)
			}
		})
	}
}

// Uses the installed roles. system:aggregate-to-edit stands for role edit, which a controller aggregates and which permits patches of pods.
func TestAdmissionUserRoles(t *testing.T) {
	installAdmission(t)
	editor := []string{"sidecar-termination-policy-editor", "sidecar-termination-policy-viewer"}
	edit := append(slices.Clone(editor), "system:aggregate-to-edit")
	testPolicyWrites(t, map[string]policyWrite{
		"editor, defaults":                {roles: editor, denied: deniedAny},
		"editor, Image only":              {roles: editor, spec: imageOnly, denied: deniedImage},
		"edit, Image only":                {roles: edit, spec: imageOnly},
		"edit, defaults":                  {roles: edit, denied: deniedAny},
		"editor and mode user, defaults":  {roles: append(slices.Clone(editor), "sidecar-termination-mode-user")},
		"mode user, prePull":              {roles: append(slices.Clone(editor), "sidecar-termination-mode-user"), spec: "{prePull: {}}", denied: deniedPrePull},
		"pre-pull user, prePull":          {roles: append(slices.Clone(editor), "sidecar-termination-mode-user", "sidecar-termination-mode-pre-pull-user"), spec: "{prePull: {}}"},
		"mode user, no policy permission": {roles: []string{"sidecar-termination-mode-user"}, denied: deniedByRoles},
	})
}

// installAdmission installs the operator and waits until the server enforces the admission policies, which it reads by a watch.
func installAdmission(t *testing.T) {
	t.Helper()
	apply(t, "default")
	space, able := newNamespace(t), newNamespace(t)
	c := author(t, space)
	author(t, able, allModes...)
	for _, tc := range []struct{ space, spec, denied string }{
		{space, crrOnly, deniedCRR}, {space, imageOnly, deniedImage}, {space, podPhaseOnly, deniedPodPhase}, {able, "prePull: {}", deniedPrePull},
	} {
		policy := newPolicy(tc.space)
		if err := yaml.Unmarshal([]byte(tc.spec), &policy.Spec); err != nil {
			t.Fatal(err)
		}
		awaitDenied(t, tc.denied, func(ctx context.Context) error { return c.Create(ctx, policy.DeepCopy(), client.DryRunAll) })
	}
	admin, _ := newClient(t)
	_, pod := finishedPod(t, admin)
	awaitDenied(t, "may change only label", func(ctx context.Context) error {
		return as(t, operatorUser()).Patch(ctx, pod.DeepCopy(), patchOf(types.MergePatchType, "metadata: {labels: {app: victim}}"), client.DryRunAll)
	})
}

// awaitDenied waits until the write is denied.
func awaitDenied(t *testing.T, denial string, write func(ctx context.Context) error) {
	t.Helper()
	testenv.Eventually(t, "the write to be denied", func(ctx context.Context) error {
		if err := write(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), denial) {
			return fmt.Errorf("got error %w, want denial %q", err, denial)
		}
		return nil
	})
}

func newNamespace(t *testing.T) string {
	t.Helper()
	c, _ := newClient(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}
	create(t, c, space)
	return space.Name
}

// author returns a client of a user who can write policies in the namespace and has the permissions there.
func author(t *testing.T, space string, rights ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	return authorIn(t, space, nil, append(rules{writePolicies}, rights...))
}

// authorIn returns a client of a user with the ClusterRoles and the permissions in the namespace.
func authorIn(t *testing.T, space string, roles []string, rights rules) client.Client {
	t.Helper()
	for _, role := range roles {
		bind(t, space, "ClusterRole", role)
	}
	// The server observes the bindings in order. This one is the last.
	probe := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}
	grant(t, space, append(rules{probe}, rights...)...)
	c := as(t, rest.ImpersonationConfig{UserName: "author", Groups: []string{"system:authenticated"}})
	testenv.Eventually(t, "the permissions to be effective", func(ctx context.Context) error {
		return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "probe-"}}, client.DryRunAll)
	})
	return c
}

// grant gives the author permissions in the namespace.
func grant(t *testing.T, space string, rights ...rbacv1.PolicyRule) {
	t.Helper()
	c, _ := newClient(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "author-"}, Rules: rights}
	create(t, c, role)
	bind(t, space, "Role", role.Name)
}

// bind binds the author to a role in the namespace.
func bind(t *testing.T, space, kind, name string) {
	t.Helper()
	c, _ := newClient(t)
	create(t, c, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "author-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "author"}},
	})
}

// grantEverywhere gives the author permissions in all namespaces, and returns when they are effective.
func grantEverywhere(t *testing.T, rule rbacv1.PolicyRule) {
	t.Helper()
	c, _ := newClient(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "author-"}, Rules: []rbacv1.PolicyRule{rule}}
	create(t, c, role)
	bindEverywhere(t, role.Name, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "author"})
	what := authorizationv1.ResourceAttributes{
		Group: rule.APIGroups[0], Resource: rule.Resources[len(rule.Resources)-1], Verb: rule.Verbs[len(rule.Verbs)-1],
		Name: strings.Join(rule.ResourceNames[max(len(rule.ResourceNames)-1, 0):], ""),
	}
	testenv.Eventually(t, "the permission to be effective", func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "author", ResourceAttributes: &what}}
		if err := c.Create(ctx, review); err != nil || review.Status.Allowed {
			return err
		}
		return errors.New("not yet")
	})
}

// bindEverywhere binds somebody to a ClusterRole in all namespaces.
func bindEverywhere(t *testing.T, role string, to rbacv1.Subject) {
	t.Helper()
	c, _ := newClient(t)
	create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "config-"}, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

// operatorUser is the operator's ServiceAccount.
func operatorUser() rest.ImpersonationConfig {
	return rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + deployment,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// as returns a client that acts as the user.
func as(t *testing.T, user rest.ImpersonationConfig) client.Client {
	t.Helper()
	config := rest.CopyConfig(server)
	config.Impersonate = user
	c, err := client.New(config, client.Options{Scheme: kinds(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newPolicy returns a policy with sidecar proxy and default settings.
func newPolicy(space string) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	return policy
}

// patchOf returns a patch in YAML.
func patchOf(kind types.PatchType, patch string) client.Patch {
	content, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		panic(err)
	}
	return client.RawPatch(kind, content)
}

// deniedByValidation is part of the API server's own error for immutable fields of a pod.
const deniedByValidation = "pod updates may not"

// requireDenied requires that the request was accepted if denial is empty, and that its error contains denial otherwise. A
// denial that ends with a blank is followed by the namespace.
func requireDenied(t *testing.T, err error, denial, space string) {
	t.Helper()
	if strings.HasSuffix(denial, " ") {
		denial += space
	}
	switch {
	case denial == "" && err != nil:
		t.Errorf("denied: %v", err)
	case denial != "" && (apierrors.IsForbidden(err) == (denial == deniedByValidation) || !strings.Contains(err.Error(), denial)):
		t.Errorf("got error %v, want denial %q", err, denial)
	}
}
