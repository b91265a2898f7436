//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// TestComponents installs the operator in every combination of a base, and of each component alone, those that leave one mode, and most of
// them together. Another manager then finds nothing to change, and Jobs of all modes complete, or say that no mode is left.
func TestComponents(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	outer := harness.New(t)
	outer.RestoreWith("reinstall")
	deployed := harness.OperatorDeployment()
	outer.Get(deployed)
	image := deployed.Spec.Template.Spec.Containers[0].Image
	combinations := [][]string{{"no-crr", "no-image"}, {"no-crr", "no-pod-phase"}, {"no-image", "no-pod-phase"}}
	together := []string{"no-crr", "no-image"}
	directories, err := os.ReadDir(filepath.Join(outer.Repository, "config", "components"))
	if err != nil {
		t.Fatal(err)
	}
	for _, directory := range directories {
		combinations = append(combinations, []string{directory.Name()})
		if !slices.Contains([]string{"no-crr", "no-image", "no-pod-phase"}, directory.Name()) {
			together = append(together, directory.Name())
		}
	}
	for _, components := range append(combinations, together) {
		for _, namespaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, namespaced %t", strings.Join(components, ", "), namespaced), func(t *testing.T) {
				test := harness.New(t)
				base := localInstallation(test, image)
				if namespaced {
					base = namespacedInstallation(test, base)
				}
				installWith(test, base, components)
				// The operator for single namespaces does not use OpenKruise, and nodes may be virtual.
				requireJobsOfAllModes(test, namespaced && slices.Contains(components, "no-image"))
			})
		}
	}
	removeInstallation(outer)
}

// localInstallation writes config/default for the local cluster.
func localInstallation(test *harness.Test, image string) string {
	test.Helper()
	repository, tag, _ := strings.Cut(image, ":")
	kustomization := harness.LocalPatches + fmt.Sprintf(`
resources: [CONFIG/default]
images:
- {name: ghcr.io/sidecar-termination/sidecar-termination-operator, newName: %s, newTag: %q}
- {name: ghcr.io/sidecar-termination/quick-exit, newName: localhost/quick-exit, newTag: "1"}
`, repository, tag)
	if !test.ServesOutcomePolicy() {
		kustomization += "components: [CONFIG/components/no-outcome-policy]\n"
	}
	return test.WriteKustomization(map[string]string{"kustomization.yaml": kustomization})
}

// namespacedInstallation does what config/overlays/namespaced tells: it copies the overlay for the test's namespace.
func namespacedInstallation(test *harness.Test, base string) string {
	test.Helper()
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(test.Repository, "config", "overlays", "namespaced", name))
		if err != nil {
			test.Fatal(err)
		}
		return string(content)
	}
	permissions := test.WriteKustomization(map[string]string{
		"kustomization.yaml": strings.NewReplacer("namespace: batch", "namespace: "+test.Namespace, "../../..", "CONFIG").Replace(read("batch/kustomization.yaml")),
	})
	return test.WriteKustomization(map[string]string{
		"flags.yaml": strings.ReplaceAll(read("flags.yaml"), "=batch", "="+test.Namespace),
		"kustomization.yaml": strings.NewReplacer("- batch", "- "+sibling(permissions), "../../default", sibling(base), "../../components", "CONFIG/components").
			Replace(read("kustomization.yaml")),
	})
}

// sibling is the path of a kustomization from another one of the same test.
func sibling(directory string) string { return "../" + filepath.Base(directory) }

// withoutForeignKinds leaves out objects of the Prometheus operator, whose kinds the cluster does not serve.
const withoutForeignKinds = `
patches:
- target: {group: monitoring.coreos.com}
  patch: |-
    $patch: delete
    apiVersion: any/v1
    kind: Any
    metadata: {name: any}
`

// installWith replaces the installation by the base with components, and requires that another manager finds nothing to change.
func installWith(test *harness.Test, base string, components []string) {
	test.Helper()
	removeInstallation(test)
	kustomization := "sortOptions: {order: fifo}\nresources: [" + sibling(base) + "]\ncomponents:\n"
	for _, component := range components {
		kustomization += "- CONFIG/components/" + component + "\n"
	}
	directory := test.WriteKustomization(map[string]string{"kustomization.yaml": kustomization + withoutForeignKinds})
	kubectl(test, "apply", "--server-side", "--force-conflicts", "--kustomize", directory)
	kubectl(test, "rollout", "status", "deployment/"+settings.DeploymentName, "--namespace="+harness.OperatorNamespace, "--timeout=3m")
	kubectl(test, "diff", "--server-side", "--field-manager=gitops", "--kustomize", directory)
}

// removeInstallation deletes all objects of the operator but its namespace and CRDs.
func removeInstallation(test *harness.Test) {
	test.Helper()
	kinds := "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	if test.ServesOutcomePolicy() {
		kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	kubectl(test, "delete", kinds, "--all-namespaces", "--selector=app.kubernetes.io/name="+settings.Name)
}

// requireJobsOfAllModes requires that a Job of each mode completes, or that its pod reports that no mode can be used.
func requireJobsOfAllModes(test *harness.Test, none bool) {
	test.Helper()
	for _, mode := range modes {
		name := strings.ToLower(string(mode))
		policy := named(with(mode), name)
		job := jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm)
		job.Name, job.Spec.Template.Labels = name, policy.Spec.PodSelector.MatchLabels
		test.Create(policy, job)
	}
	for _, mode := range modes {
		name := strings.ToLower(string(mode))
		if none {
			test.WaitForEvent(test.WaitForMain(name), v1alpha1.ReasonNoUsableMode)
			continue
		}
		test.RequireCompleted(name)
	}
}
