// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	gocmp "cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

// role is a Role or a ClusterRole.
type role struct {
	kind, namespace, name string
	labels                map[string]string
	rules                 []rbacv1.PolicyRule
}

func roles(t *testing.T, rendered resources) []role {
	t.Helper()
	var all []role
	for _, r := range ofKind[rbacv1.Role](t, rendered, "Role") {
		all = append(all, role{"Role", r.Namespace, r.Name, r.Labels, r.Rules})
	}
	for _, r := range ofKind[rbacv1.ClusterRole](t, rendered, "ClusterRole") {
		all = append(all, role{"ClusterRole", "", r.Name, r.Labels, r.Rules})
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

// The golden file shows every permission. These must not get there.
func TestRolesGrantNoSensitiveAccess(t *testing.T) {
	sensitive := []string{
		"*", "escalate", "bind", "impersonate", rbacv1.GroupName, "secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy",
		"pods/ephemeralcontainers", "nodes/proxy", "serviceaccounts/token",
	}
	for _, installation := range installations() {
		for _, r := range roles(t, render(t, installation)) {
			if len(r.rules) == 0 {
				t.Errorf("%s %s grants nothing", r.kind, r.name)
			}
			for _, rule := range r.rules {
				for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs) {
					if slices.Contains(sensitive, word) {
						t.Errorf("%s %s grants %s: %v", r.kind, r.name, word, rule)
					}
				}
			}
		}
	}
}

func TestBindingsReferenceInstalledRoles(t *testing.T) {
	operator := []rbacv1.Subject{{Kind: "ServiceAccount", Name: deployment, Namespace: namespace}}
	for _, installation := range append(installations(), namespacedOverlay) {
		rendered := render(t, installation)
		var bindings []rbacv1.ClusterRoleBinding
		for _, binding := range ofKind[rbacv1.RoleBinding](t, rendered, "RoleBinding") {
			bindings = append(bindings, rbacv1.ClusterRoleBinding(binding))
		}
		for _, binding := range append(bindings, ofKind[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding")...) {
			bound := func(r role) bool {
				return r.kind == binding.RoleRef.Kind && r.name == binding.RoleRef.Name && (r.kind == "ClusterRole" || r.namespace == binding.Namespace)
			}
			if !slices.ContainsFunc(roles(t, rendered), bound) {
				t.Errorf("%s: %s binds no installed role: %v", installation, binding.Name, binding.RoleRef)
			}
			if !slices.Equal(binding.Subjects, operator) {
				t.Errorf("%s: %s binds %v, want only the operator's ServiceAccount", installation, binding.Name, binding.Subjects)
			}
		}
	}
}

// The golden file makes changes of permissions visible in reviews. Update it with go test ./config -update.
func TestPermissionsMatchGoldenFile(t *testing.T) {
	const golden = "testdata/rights.txt"
	standard := permissions(t, "default")
	got := "default\n" + strings.Join(standard, "")
	for _, installation := range installations()[1:] {
		got += "\n" + installation + ", compared with default\n"
		other := permissions(t, installation)
		for _, line := range standard {
			if !slices.Contains(other, line) {
				got += "-" + line
			}
		}
		for _, line := range other {
			if !slices.Contains(standard, line) {
				got += "+" + line
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(readConfig(t, golden)), got); diff != "" {
		t.Errorf("permissions (-%s +rendered):\n%s", golden, diff)
	}
}

// permissions returns the lines of rights, each with who has the right.
func permissions(t *testing.T, installation string) []string {
	t.Helper()
	rendered := render(t, installation)
	var lines []string
	add := func(who string, rules []rbacv1.PolicyRule) {
		for line := range strings.Lines(rights(rules)) {
			lines = append(lines, "  "+who+strings.TrimPrefix(line, " "))
		}
	}
	add("operator, whole cluster:", boundTo(t, rendered, "ClusterRole"))
	add("operator, own namespace:", boundTo(t, rendered, "Role"))
	for _, r := range forUsers(t, rendered) {
		add("users bound to "+strings.TrimPrefix(r.name, "sidecar-termination-")+":", r.rules)
	}
	return lines
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
			if mode != "pod-phase" && disabled == rendered.has("ClusterRole", name) {
				t.Errorf("%s: has %s: %t, has %s: %t", installation, flag, disabled, name, !disabled)
			}
			// Policy authors need no permission for a disabled mode.
			if checked := rendered.has("ValidatingAdmissionPolicy", "sidecar-termination-mode-"+mode); checked == disabled {
				t.Errorf("%s: has %s: %t, has its admission policy: %t", installation, flag, disabled, checked)
			}
		}
		// The operator marks pods whatever its modes are.
		if !rendered.has("ClusterRole", "sidecar-termination-manager-outcome-role") {
			t.Errorf("%s: the operator cannot mark pods", installation)
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
				key := gocmp.Or(group, "core") + "/" + resource
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

func TestBuiltInRolesAggregatePolicies(t *testing.T) {
	granted := map[string]string{}
	for _, r := range roles(t, render(t, "default")) {
		for _, builtIn := range []string{"view", "edit", "admin"} {
			if r.labels["rbac.authorization.k8s.io/aggregate-to-"+builtIn] == "true" {
				granted[builtIn] += rights(r.rules)
			}
		}
	}
	const writes = "  sidecartermination.dev/sidecarterminationpolicies: create delete deletecollection patch update\n"
	want := map[string]string{"edit": writes, "admin": writes, "view": `  sidecartermination.dev/sidecarterminationpolicies: get list watch
  sidecartermination.dev/sidecarterminationpolicies/status: get
  sidecartermination.dev/clustersidecarterminationpolicies: get list watch
  sidecartermination.dev/clustersidecarterminationpolicies/status: get
`}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("permissions that built-in roles gain (-want +got):\n%s", diff)
	}
}
