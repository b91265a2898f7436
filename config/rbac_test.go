// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "write what is rendered to testdata instead of comparing")

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

func TestNoRoleGrantsMoreThanItNames(t *testing.T) {
	for _, r := range roles(t, render(t, "default")) {
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

func TestNoRoleGrantsSecretsOrOtherRights(t *testing.T) {
	for _, r := range roles(t, render(t, "default")) {
		for _, rule := range r.rules {
			for _, resource := range []string{"secrets", "pods/exec", "pods/ephemeralcontainers", "nodes/proxy", "serviceaccounts/token"} {
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

func TestBindingsBindInstalledRolesToTheOperator(t *testing.T) {
	rendered := render(t, "default")
	all := roles(t, rendered)
	operator := []rbacv1.Subject{{Kind: "ServiceAccount", Name: deployment, Namespace: namespace}}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		t.Helper()
		if got := named(t, all, ref.Name); got.kind != ref.Kind {
			t.Errorf("%s binds a %s, and %s is a %s", name, ref.Kind, got.name, got.kind)
		}
		if !slices.Equal(subjects, operator) {
			t.Errorf("%s binds %v, want the operator's ServiceAccount alone", name, subjects)
		}
	}
	binding := only[rbacv1.RoleBinding](t, rendered, "RoleBinding")
	check(binding.Name, binding.RoleRef, binding.Subjects)
	clusterBinding := only[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding")
	check(clusterBinding.Name, clusterBinding.RoleRef, clusterBinding.Subjects)
}

// The rights of the operator are reviewed line by line. After a wanted change: go test ./config -update.
func TestTheOperatorHasTheRightsThatWereReviewed(t *testing.T) {
	const golden = "testdata/operator_rights.txt"
	all := roles(t, render(t, "default"))
	got := "In the whole cluster:\n" + rights(named(t, all, "sidecar-termination-manager-role")) +
		"\nIn its own namespace:\n" + rights(named(t, all, "sidecar-termination-leader-election-role"))
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
		t.Errorf("the operator's rights are not those of %s:\n%s", golden, got)
	}
}

// rights returns one line for each resource that a role grants something on.
func rights(r role) string {
	var lines []string
	for _, rule := range r.rules {
		for _, resource := range rule.Resources {
			line := fmt.Sprintf("  %s/%s: %s", cmp.Or(rule.APIGroups[0], "core"), resource, strings.Join(rule.Verbs, " "))
			if len(rule.ResourceNames) > 0 {
				line += ", only " + strings.Join(rule.ResourceNames, " ")
			}
			lines = append(lines, line+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestOnlyOneLeaseMayBeRead(t *testing.T) {
	for _, rule := range named(t, roles(t, render(t, "default")), "sidecar-termination-leader-election-role").rules {
		if !slices.Contains(rule.Resources, "leases") || slices.Equal(rule.Verbs, []string{"create"}) {
			continue
		}
		if want := []string{"sidecar-termination-operator.sidecartermination.dev"}; !slices.Equal(rule.ResourceNames, want) {
			t.Errorf("verbs %v hold for leases %v, want %v", rule.Verbs, rule.ResourceNames, want)
		}
	}
}

func TestBuiltInRolesIncludePolicies(t *testing.T) {
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
		t.Errorf("built-in roles gain access to %v, want the policy kinds alone", granted)
	}
}
