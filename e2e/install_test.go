//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

const kubectlTimeout = 5 * time.Minute

// The example of docs/kustomize.md: a patched preset and a Job.
func TestKubectlAppliesPatchedPreset(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	overlay := test.WriteKustomization(map[string]string{
		"kustomization.yaml": fmt.Sprintf(`
namespace: %s
namePrefix: etl-
resources: [CONFIG/presets/fluent-bit, job.yaml]
patches: [{path: policy_patch.yaml}]
images: [{name: busybox, newName: localhost/busybox, newTag: "1"}]
`, test.Namespace),
		"policy_patch.yaml": `
apiVersion: sidecartermination.dev/v1alpha1
kind: SidecarTerminationPolicy
metadata: {name: fluent-bit}
spec:
  sidecars:
  - {name: fluent-bit, drainSeconds: 1}
  - {name: uploader}
`,
		"job.yaml": `
apiVersion: batch/v1
kind: Job
metadata: {name: load}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 3
      containers:
      - {name: main, image: busybox, imagePullPolicy: IfNotPresent, command: [/bin/sh, -c, "sleep 2"]}
      - {name: fluent-bit, image: busybox, imagePullPolicy: IfNotPresent, command: [/bin/sh, -c, "trap 'exit 7' TERM; sleep 3600 & wait"]}
      - {name: uploader, image: busybox, imagePullPolicy: IfNotPresent, command: [/bin/sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]}
`,
	})
	kubectl(test, "apply", "-k", overlay)
	test.RequireCompleted("etl-load")

	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "etl-fluent-bit"}}
	test.Get(policy)
	var names []string
	for _, sidecar := range policy.Spec.Sidecars {
		names = append(names, sidecar.Name)
		if sidecar.Name == "fluent-bit" && (*sidecar.DrainSeconds != 1 || sidecar.ExitCodePolicy == "") {
			t.Errorf("fluent-bit is %+v, want the preset with drainSeconds 1", sidecar)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"fluent-bit", "uploader"}) {
		t.Errorf("sidecars %v, want fluent-bit and uploader", names)
	}
	kubectl(test, "delete", "--wait=false", "-k", overlay)
}

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

// A checkout is installed with images that the nodes pull from a registry. Only the patches of config/overlays/local are added: pods of
// the local cluster cannot reach the API server by a pod network.
func TestInstallWithOwnImages(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	test := harness.New(t)
	test.WholeAtEnd()
	test.RestoreWith("deploy")
	registry := harness.StartRegistry(t)
	references := dist.References{Operator: registry.Reference("team/" + dist.OperatorImage + ":dev")}
	directory := t.TempDir()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if _, err := dist.WriteImages(t.Context(), test.Repository, filepath.Join(directory, "images"), []v1.Platform{platform}); err != nil {
		t.Fatal(err)
	}
	push := exec.CommandContext(t.Context(), "make", "--no-print-directory", "docker-push", "DIST="+directory, "IMG="+references.Operator)
	push.Dir = test.Repository
	if output, err := push.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", push.Args, err, output)
	}

	installation := test.WriteKustomization(map[string]string{"kustomization.yaml": harness.LocalPatches + "resources: [own]\n"})
	if err := dist.WriteOverlay(filepath.Join(test.Repository, "config"), filepath.Join(installation, "own"), references); err != nil {
		t.Fatal(err)
	}
	// The field manager of `make cluster-deploy`, so that the next deployment has no conflicts.
	kubectl(test, "apply", "--server-side", "--force-conflicts", "--field-manager=localcluster", "-k", installation)
	test.WaitForOperator()
	if image := operatorImage(test); image != references.Operator {
		t.Errorf("The operator has image %s, want %s", image, references.Operator)
	}

	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Spec.Image = "" // of the operator
	test.Create(policy,
		harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	record := test.RequireCompleted("job")
	test.RequireImage(record, harness.SidecarName, registry.Reference("team/"+dist.QuickExitImage+":dev"))
}
