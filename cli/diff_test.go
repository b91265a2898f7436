// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDiff(t *testing.T) {
	c, pod := newStuckPod(t, true)
	namespace := pod.Namespace
	write := func(name, policy string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("apiVersion: sidecartermination.dev/v1alpha1\n"+policy), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	same := write("same.yaml", "kind: SidecarTerminationPolicy\nmetadata: {name: mesh}\nspec: {podSelector: {}, sidecars: [{name: proxy}]}\n")
	out, code := runCommand(t, "diff", "-f", same, "-n", namespace)
	wantOutput(t, "the same policy", out, code, 0, "Pods checked: 1; pods with another decision: 0")

	mode := write("mode.yaml", "kind: SidecarTerminationPolicy\nmetadata: {name: mesh}\nspec: {podSelector: {}, sidecars: [{name: proxy}], mode: Image, image: registry.example/quick-exit:v1, fallback: Disabled}\n")
	out, code = runCommand(t, "diff", "-f", mode, "-n", namespace)
	wantOutput(t, "another mode", out, code, 1, "Pod "+namespace+"/job-1: SidecarTerminationPolicy/mesh", "modes proxy PodPhase Image",
		"fallback proxy Enabled Disabled", "pods with another decision: 1")

	cluster := write("cluster.yaml", "kind: ClusterSidecarTerminationPolicy\nmetadata: {name: all}\nspec: {podSelector: {}, sidecars: [{name: main}]}\n")
	out, code = runCommand(t, "diff", "-f", cluster)
	wantOutput(t, "a cluster policy", out, code, 1,
		"Pod "+namespace+"/job-1: ClusterSidecarTerminationPolicy/all", "decision Terminating (Terminating) Stuck (NoMainContainer)",
		"mainContainers main None", "sidecars proxy main, proxy", "declaredBy main None ClusterSidecarTerminationPolicy/all")
	requireUnchanged(t, c, pod)

	create(t, c,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "olga"}}})
	out, code = runCommand(t, "diff", "-f", cluster, "--as", "olga")
	wantOutput(t, "a cluster policy with permissions in one namespace", out, code, 2, "error: list pods", "forbidden")
}
