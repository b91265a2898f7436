//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/settings"
)

const kubectlTimeout = 5 * time.Minute

// operatorImage returns the image of the deployed operator.
func operatorImage(test *harness.Test) string {
	test.Helper()
	deployment := harness.OperatorDeployment()
	test.Get(deployment)
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// kubectl runs kubectl on the cluster and returns its output.
func kubectl(test *harness.Test, arguments ...string) string {
	test.Helper()
	ctx, cancel := context.WithTimeout(test.Context(), kubectlTimeout)
	defer cancel()
	output, err := test.TryKubectl(ctx, arguments...)
	if err != nil {
		test.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// With overlay namespaced the operator ends sidecars in its namespace without any ClusterRole, and leaves other namespaces alone.
func TestNamespaced(t *testing.T) {
	harness.Exclusive(t)
	watched, other := harness.New(t), harness.New(t)
	watched.WholeAtEnd()
	watched.RestoreWith("deploy")
	installNamespaced(watched)

	policy := harness.Policy(v1alpha1.ModeAuto)
	other.Create(harness.Policy(v1alpha1.ModeAuto), harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
	other.WaitForMain("job")
	watched.Create(policy, harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(1)))
	watched.RequireCompleted("job")
	watched.EventuallyStatus(policy, "the pod to be counted as terminated", func(status v1alpha1.PolicyStatus) error {
		if status.TerminatedPods != 1 {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
	requireUntouched(other, "job")

	log := kubectl(watched, "logs", "--namespace="+harness.OperatorNamespace, "deployment/"+settings.DeploymentName)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("The operator needs more permissions: %s", line)
		}
	}
}

// installNamespaced makes the operator of the local cluster one that overlay namespaced installs, for the test's namespace, whose nodes
// are real.
func installNamespaced(test *harness.Test) {
	test.Helper()
	overlay := filepath.Join(test.Repository, "config", "overlays", "namespaced")
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(overlay, name))
		if err != nil {
			test.Fatal(err)
		}
		return string(content)
	}
	namespaced := types.Kustomization{}
	if err := yaml.UnmarshalStrict([]byte(read("kustomization.yaml")), &namespaced); err != nil {
		test.Fatal(err)
	}
	image, tag, _ := strings.Cut(operatorImage(test), ":")
	namespaced.Resources = []string{"CONFIG/overlays/local", "roles"}
	namespaced.Components = []string{"CONFIG/components/no-admission"}
	namespaced.Images = []types.Image{{Name: image, NewTag: tag}}
	content, err := yaml.Marshal(namespaced)
	if err != nil {
		test.Fatal(err)
	}
	flags := strings.NewReplacer("namespaces=batch", "namespaces="+test.Namespace, "kind=Unknown", "kind=Real").Replace(read("flags.yaml"))
	installation := test.WriteKustomization(map[string]string{
		"kustomization.yaml": string(content), "flags.yaml": flags, "delete.yaml": read("delete.yaml"),
	})
	addRoles(test, filepath.Join(installation, "roles"))
	kubectl(test, "delete", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
		"--selector=app.kubernetes.io/part-of=sidecar-termination-operator")
	// The field manager of `make cluster-deploy`, so that the next deployment has no conflicts.
	kubectl(test, "apply", "--server-side", "--force-conflicts", "--field-manager=localcluster", "-k", installation)
	test.WaitForOperator()
}

// addRoles writes a kustomization with the operator's roles in the test's namespace.
func addRoles(test *harness.Test, directory string) {
	test.Helper()
	roles, err := filepath.Rel(directory, filepath.Join(test.Repository, "config", "rbac-namespaced"))
	if err != nil {
		test.Fatal(err)
	}
	if err := os.Mkdir(directory, 0o700); err != nil {
		test.Fatal(err)
	}
	content := fmt.Sprintf("namespace: %s\nresources: [%s]\n", test.Namespace, roles)
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		test.Fatal(err)
	}
}
