//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const kubectlTimeout = 5 * time.Minute

// The example of docs/kustomize.md: a patched preset and a Job.
func TestKubectlAppliesPatchedPreset(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	overlay := writeKustomization(test, map[string]string{
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
		if sidecar.Name == "fluent-bit" && (*sidecar.DrainSeconds != 1 || sidecar.ExitCodes == "") {
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

// writeKustomization writes a user's files, in which CONFIG stands for the relative path of the operator's directory config.
func writeKustomization(test *harness.Test, files map[string]string) string {
	test.Helper()
	directory, err := filepath.EvalSymlinks(test.TempDir())
	if err != nil {
		test.Fatal(err)
	}
	config, err := filepath.Rel(directory, filepath.Join(test.Repository, "config"))
	if err != nil {
		test.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(strings.ReplaceAll(content, "CONFIG", config)), 0o600); err != nil {
			test.Fatal(err)
		}
	}
	return directory
}
