// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sidecar-termination/operator/internal/settings"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

// role is a Role or a ClusterRole.
type role struct {
	kind, name string
	labels     map[string]string
	rules      []rbacv1.PolicyRule
}

func roles(t *testing.T, rendered resources) []role {
	t.Helper()
	var all []role
	for _, r := range ofKind[rbacv1.Role](t, rendered, "Role") {
		all = append(all, role{"Role", r.Name, r.Labels, r.Rules})
	}
	for _, r := range ofKind[rbacv1.ClusterRole](t, rendered, "ClusterRole") {
		all = append(all, role{"ClusterRole", r.Name, r.Labels, r.Rules})
	}
	return all
}

func named(t *testing.T, all []role, name string) role {
	t.Helper()
	i := slices.IndexFunc(all, func(r role) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("no role %s", name)
	}
	return all[i]
}

// everyRole returns the roles of all installations.
func everyRole(t *testing.T) []role {
	t.Helper()
	var all []role
	for _, installation := range installations() {
		all = append(all, roles(t, render(t, installation))...)
	}
	return all
}

func TestRolesHaveNoWildcards(t *testing.T) {
	for _, r := range everyRole(t) {
		if len(r.rules) == 0 {
			t.Errorf("%s %s grants nothing", r.kind, r.name)
		}
		for _, rule := range r.rules {
			if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), "*") {
				t.Errorf("%s %s has a wildcard: %v", r.kind, r.name, rule)
			}
		}
	}
}

func TestRolesGrantNoSensitiveAccess(t *testing.T) {
	for _, r := range everyRole(t) {
		for _, rule := range r.rules {
			for _, resource := range []string{
				"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers", "nodes/proxy",
				"serviceaccounts/token",
			} {
				if slices.Contains(rule.Resources, resource) {
					t.Errorf("%s %s grants %s", r.kind, r.name, resource)
				}
			}
			for _, verb := range []string{"escalate", "bind", "impersonate"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("%s %s grants %s", r.kind, r.name, verb)
				}
			}
			if slices.Contains(rule.APIGroups, rbacv1.GroupName) {
				t.Errorf("%s %s grants access to roles", r.kind, r.name)
			}
		}
	}
}

func TestBindingsReferenceInstalledRoles(t *testing.T) {
	for _, installation := range installations() {
		testBindings(t, render(t, installation))
	}
}

func testBindings(t *testing.T, rendered resources) {
	t.Helper()
	all := roles(t, rendered)
	operator := []rbacv1.Subject{{Kind: "ServiceAccount", Name: deployment, Namespace: namespace}}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		t.Helper()
		if got := named(t, all, ref.Name); got.kind != ref.Kind {
			t.Errorf("%s binds a %s, and %s is a %s", name, ref.Kind, got.name, got.kind)
		}
		if !slices.Equal(subjects, operator) {
			t.Errorf("%s binds %v, want only the operator's ServiceAccount", name, subjects)
		}
	}
	binding := only[rbacv1.RoleBinding](t, rendered, "RoleBinding")
	check(binding.Name, binding.RoleRef, binding.Subjects)
	for _, clusterBinding := range ofKind[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding") {
		check(clusterBinding.Name, clusterBinding.RoleRef, clusterBinding.Subjects)
	}
}

// The golden files make changes of permissions visible in reviews. Update them with go test ./config -update.
func TestPermissionsMatchGoldenFiles(t *testing.T) {
	for _, installation := range installations() {
		golden := filepath.Join("testdata", "rights", strings.ReplaceAll(installation, "/", "_")+".txt")
		rendered := render(t, installation)
		got := "In the whole cluster:\n" + rights(boundTo(t, rendered, "ClusterRole")) +
			"\nIn its own namespace:\n" + rights(boundTo(t, rendered, "Role"))
		for _, r := range forUsers(t, rendered) {
			got += "\nFor users who are bound to " + r.name + ":\n" + rights(r.rules)
		}
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: the permissions differ from %s:\n%s", installation, golden, got)
		}
	}
}

func TestDisabledModesHaveNoPermissions(t *testing.T) {
	for _, installation := range installations() {
		rendered := render(t, installation)
		args := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers[0].Args
		for flag, mode := range map[string]string{
			"--crr=Disabled": "crr", "--image-swap=Disabled": "image", "--pod-phase=Disabled": "pod-phase", "--pre-pull=Disabled": "pre-pull",
		} {
			disabled := slices.Contains(args, flag)
			name := "sidecar-termination-manager-" + mode + "-role"
			granted := slices.ContainsFunc(roles(t, rendered), func(r role) bool { return r.name == name })
			if disabled == granted {
				t.Errorf("%s: has %s: %t, has %s: %t", installation, flag, disabled, name, granted)
			}
			// Policy authors need no permission for a disabled mode.
			if checked := rendered.has("ValidatingAdmissionPolicy", "sidecar-termination-mode-"+mode); checked == disabled {
				t.Errorf("%s: has %s: %t, has its admission policy: %t", installation, flag, disabled, checked)
			}
		}
		// Without mode PodPhase, the operator cannot remove the guard of a phase.
		if guarded := rendered.has("ValidatingAdmissionPolicy", "sidecar-termination-phase-guard"); guarded == slices.Contains(args, "--pod-phase=Disabled") {
			t.Errorf("%s: has the phase guard: %t", installation, guarded)
		}
	}
}

// bound returns the bound roles. All are bound to the operator.
func bound(t *testing.T, rendered resources) []rbacv1.RoleRef {
	t.Helper()
	var refs []rbacv1.RoleRef
	for _, binding := range ofKind[rbacv1.RoleBinding](t, rendered, "RoleBinding") {
		refs = append(refs, binding.RoleRef)
	}
	for _, binding := range ofKind[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding") {
		refs = append(refs, binding.RoleRef)
	}
	return refs
}

// forUsers returns the unbound roles, sorted by name.
func forUsers(t *testing.T, rendered resources) []role {
	t.Helper()
	refs := bound(t, rendered)
	unbound := slices.DeleteFunc(roles(t, rendered), func(r role) bool {
		return slices.ContainsFunc(refs, func(ref rbacv1.RoleRef) bool { return ref.Kind == r.kind && ref.Name == r.name })
	})
	slices.SortFunc(unbound, func(a, b role) int { return strings.Compare(a.name, b.name) })
	return unbound
}

// boundTo returns the rules of the operator's roles of a kind.
func boundTo(t *testing.T, rendered resources, kind string) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, ref := range bound(t, rendered) {
		if ref.Kind == kind {
			rules = append(rules, named(t, roles(t, rendered), ref.Name).rules...)
		}
	}
	return rules
}

// rights returns one line for each resource, with resourceNames, and each non-resource URL.
func rights(rules []rbacv1.PolicyRule) string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		var keys []string
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				key := cmp.Or(group, "core") + "/" + resource
				if len(rule.ResourceNames) > 0 {
					key += " (only " + strings.Join(rule.ResourceNames, " ") + ")"
				}
				keys = append(keys, key)
			}
		}
		for _, key := range slices.Concat(keys, rule.NonResourceURLs) {
			verbs[key] = append(verbs[key], rule.Verbs...)
		}
	}
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(verbs)) {
		fmt.Fprintf(&lines, "  %s: %s\n", key, strings.Join(slices.Sorted(slices.Values(verbs[key])), " "))
	}
	return lines.String()
}

func TestLeaderElectionRoleNamesLease(t *testing.T) {
	for _, rule := range named(t, roles(t, render(t, "default")), "sidecar-termination-leader-election-role").rules {
		if !slices.Contains(rule.Resources, "leases") || slices.Equal(rule.Verbs, []string{"create"}) {
			continue
		}
		if want := []string{settings.LeaseName}; !slices.Equal(rule.ResourceNames, want) {
			t.Errorf("verbs %v hold for leases %v, want %v", rule.Verbs, rule.ResourceNames, want)
		}
	}
}

func TestBuiltInRolesAggregatePolicies(t *testing.T) {
	const prefix = "rbac.authorization.k8s.io/aggregate-to-"
	reads, writes := []string{"get", "list", "watch"}, []string{"create", "delete", "deletecollection", "patch", "update"}
	granted := map[string]map[string][]string{}
	for _, r := range roles(t, render(t, "default")) {
		for _, builtIn := range []string{"view", "edit", "admin"} {
			if r.labels[prefix+builtIn] != "true" {
				continue
			}
			for _, rule := range r.rules {
				for _, resource := range rule.Resources {
					if granted[resource] == nil {
						granted[resource] = map[string][]string{}
					}
					granted[resource][builtIn] = append(granted[resource][builtIn], rule.Verbs...)
				}
			}
		}
	}
	for resource, want := range map[string]map[string][]string{
		"sidecarterminationpolicies":               {"view": reads, "edit": writes, "admin": writes},
		"sidecarterminationpolicies/status":        {"view": {"get"}},
		"clustersidecarterminationpolicies":        {"view": reads},
		"clustersidecarterminationpolicies/status": {"view": {"get"}},
	} {
		for _, builtIn := range []string{"view", "edit", "admin"} {
			if got := granted[resource][builtIn]; !slices.Equal(got, want[builtIn]) {
				t.Errorf("%s gains %v on %s, want %v", builtIn, got, resource, want[builtIn])
			}
		}
	}
	if len(granted) != 4 {
		t.Errorf("built-in roles gain access to %v, want only the policy kinds", granted)
	}
}
