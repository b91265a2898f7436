//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
	"github.com/sidecar-termination/operator/hack/packaging/images"
)

// A checkout is installed with images that the nodes pull from a registry. Only the patches of config/overlays/local are added: pods of
// the local cluster cannot reach the API server by a pod network.
func TestInstallWithOwnImages(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.WholeAtEnd()
	test.RestoreWith("deploy")
	registry := harness.StartRegistry(t)
	references := checkout.References{Operator: registry.Reference("team/" + images.Operator + ":dev")}
	dist := t.TempDir()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if _, err := images.Write(t.Context(), test.Repository, filepath.Join(dist, "images"), "latest", []v1.Platform{platform}); err != nil {
		t.Fatal(err)
	}
	push := exec.CommandContext(t.Context(), "make", "--no-print-directory", "docker-push", "DIST="+dist, "IMG="+references.Operator)
	push.Dir = test.Repository
	if output, err := push.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", push.Args, err, output)
	}

	overlay := filepath.Join(dist, "overlay")
	if err := checkout.WriteOverlay(filepath.Join(test.Repository, "config"), overlay, references); err != nil {
		t.Fatal(err)
	}
	installation := writeKustomization(test, localPatches(test))
	base, err := filepath.Rel(installation, overlay)
	if err != nil {
		t.Fatal(err)
	}
	kustomization := fmt.Sprintf(`
sortOptions: {order: fifo}
resources: [%s]
patches: [{path: namespace.yaml}, {path: deployment.yaml}, {path: poddisruptionbudget.yaml}]
`, base)
	if err := os.WriteFile(filepath.Join(installation, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
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
	test.RequireImage(record, harness.SidecarName, registry.Reference("team/"+images.QuickExit+":dev"))
}

// localPatches are the patches of config/overlays/local, with images that are pulled.
func localPatches(test *harness.Test) map[string]string {
	test.Helper()
	patches := map[string]string{}
	for _, name := range []string{"namespace.yaml", "deployment.yaml", "poddisruptionbudget.yaml"} {
		content, err := os.ReadFile(filepath.Join(test.Repository, "config", "overlays", "local", name))
		if err != nil {
			test.Fatal(err)
		}
		patches[name] = strings.ReplaceAll(string(content), "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent")
	}
	return patches
}
