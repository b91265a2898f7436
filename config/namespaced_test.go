// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// namespacedOverlay installs the operator for single namespaces.
const namespacedOverlay = "overlays/namespaced"

// managerRoles are the roles of the operator in each namespace, which are ClusterRoles in other installations.
var managerRoles = []string{"sidecar-termination-manager-image-role", "sidecar-termination-manager-outcome-role", "sidecar-termination-manager-role"}

func TestNamespacedHasNoPermissionInTheCluster(t *testing.T) {
	for _, object := range render(t, namespacedOverlay) {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition", "ServiceAccount", "Deployment", "PodDisruptionBudget", "Role", "RoleBinding":
		default:
			t.Errorf("it has %s %s", object.GetKind(), object.GetName())
		}
	}
}

func TestNamespacedFlagsMatchItsRoles(t *testing.T) {
	rendered := render(t, namespacedOverlay)
	operatorDeployment := only[appsv1.Deployment](t, rendered, "Deployment")
	arguments, _ := source.OperatorArguments(&operatorDeployment)
	operator, err := settings.Parse(arguments)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range managerRoles {
		var granted []string
		for _, r := range ofKind[rbacv1.Role](t, rendered, "Role") {
			if r.Name == name {
				granted = append(granted, r.Namespace)
			}
		}
		slices.Sort(granted)
		if difference := cmp.Diff(granted, operator.WatchNamespaces); difference != "" {
			t.Errorf("namespaces of %s (-roles +flag):\n%s", name, difference)
		}
	}
	if operator.NodeKindRules.All != plan.NodeNotRead || operator.Metrics.Authenticated {
		t.Errorf("settings are %+v", operator)
	}
}

// withoutNamespace are the resources without a namespace in the operator's ClusterRoles.
var withoutNamespace = []string{
	"namespaces", "nodes", "tokenreviews", "subjectaccessreviews",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	"clustersidecarterminationpolicies", "clustersidecarterminationpolicies/status",
}

func TestNamespacedRolesMatchClusterRoles(t *testing.T) {
	rendered, cluster := render(t, namespacedOverlay), roles(t, render(t, "default"))
	for _, name := range managerRoles {
		var want []rbacv1.PolicyRule
		for _, rule := range named(t, cluster, name).rules {
			rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return slices.Contains(withoutNamespace, r) })
			want = append(want, rule)
		}
		if difference := cmp.Diff(rights(want), rights(named(t, roles(t, rendered), name).rules)); difference != "" {
			t.Errorf("%s (-ClusterRole +Role):\n%s", name, difference)
		}
	}
}

func TestNamespacedRolesAreBound(t *testing.T) {
	rendered := render(t, namespacedOverlay)
	for _, r := range ofKind[rbacv1.Role](t, rendered, "Role") {
		if !slices.ContainsFunc(ofKind[rbacv1.RoleBinding](t, rendered, "RoleBinding"), func(binding rbacv1.RoleBinding) bool {
			return binding.Namespace == r.Namespace && binding.RoleRef.Name == r.Name
		}) {
			t.Errorf("nothing binds %s in namespace %s", r.Name, r.Namespace)
		}
	}
}

// Users copy the overlay, and may rename everything.
func TestNamespacedOverlayCanBeRenamed(t *testing.T) {
	rendered := renderOverlay(t, strings.Join([]string{
		"namePrefix: team-a-", "resources: [CONFIG/" + namespacedOverlay + "]",
	}, "\n"))
	for _, binding := range ofKind[rbacv1.RoleBinding](t, rendered, "RoleBinding") {
		if !strings.HasPrefix(binding.RoleRef.Name, "team-a-") || binding.Subjects[0].Name != "team-a-"+deployment {
			t.Errorf("%s binds %s to %v", binding.Name, binding.RoleRef.Name, binding.Subjects)
		}
	}
}

// docs/namespaced.md says which components can be added above the overlay.
func TestNamespacedOverlayWithComponents(t *testing.T) {
	kinds := func(t *testing.T, components string) map[string]int {
		t.Helper()
		count := map[string]int{}
		for _, object := range renderOverlay(t, "resources: [CONFIG/"+namespacedOverlay+"]\ncomponents: ["+components+"]\n") {
			if !slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "Deployment", "PodDisruptionBudget"}, object.GetKind()) {
				count[object.GetKind()]++
			}
		}
		return count
	}
	alone := kinds(t, "")
	for components, want := range map[string]map[string]int{
		"no-crr":           {},
		"no-pod-phase":     {},
		"no-pre-pull":      {},
		"tenants":          {},
		"no-image":         {"Role": -1, "RoleBinding": -1},
		"network-policy":   {"NetworkPolicy": 1},
		"alerts":           {"PrometheusRule": 1},
		"dashboard":        {"ConfigMap": 1},
		"service-monitor":  {"Service": 1, "ServiceMonitor": 1},
		"include-injected": {"ClusterRole": 1, "ClusterRoleBinding": 1},
	} {
		t.Run(components, func(t *testing.T) {
			got := kinds(t, "CONFIG/components/"+components)
			for kind, count := range alone {
				want[kind] += count
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}
