//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const localClusterTimeout = 5 * time.Minute

// kindsOfAddons are kinds of the tools that `make cluster-up WITH=NAME` adds.
var kindsOfAddons = map[string]schema.GroupKind{
	"argo": {Group: "argoproj.io", Kind: "Workflow"}, "jobset": {Group: "jobset.x-k8s.io", Kind: "JobSet"}, "kueue": {Group: "kueue.x-k8s.io", Kind: "LocalQueue"},
}

// RequireAddon skips the test if the cluster lacks the addon. With REQUIRE_E2E=1 the test fails instead.
func (t *Test) RequireAddon(name string) {
	t.Helper()
	if t.serves(kindsOfAddons[name]) {
		return
	}
	reason := fmt.Sprintf("The cluster does not have %s: bring it up by make cluster-up WITH=%[1]s", name)
	if os.Getenv("REQUIRE_E2E") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// serves reports whether the API server has the kind, in one of the versions if there are any.
func (t *Test) serves(kind schema.GroupKind, versions ...string) bool {
	t.Helper()
	_, err := t.Client.RESTMapper().RESTMapping(kind, versions...)
	if err != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	return err == nil
}

// LocalPatches are lines of a kustomization. They adapt the operator to the local cluster, whose pods cannot reach the API server by a pod
// network. WriteKustomization writes the patches.
const LocalPatches = `
sortOptions: {order: fifo}
patches: [{path: namespace.yaml}, {path: deployment.yaml}, {path: poddisruptionbudget.yaml}]
`

// WriteKustomization writes a user's files into a new directory, next to the patches of config/overlays/local, with images that are pulled.
// In kustomization.yaml, CONFIG stands for the relative path of the operator's directory config.
func (t *Test) WriteKustomization(files map[string]string) string {
	t.Helper()
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(directory, filepath.Join(t.Repository, "config"))
	if err != nil {
		t.Fatal(err)
	}
	files["kustomization.yaml"] = strings.ReplaceAll(files["kustomization.yaml"], "CONFIG", config)
	for _, name := range []string{"namespace.yaml", "deployment.yaml", "poddisruptionbudget.yaml"} {
		patch, err := os.ReadFile(filepath.Join(t.Repository, "config", "overlays", "local", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.ReplaceAll(string(patch), "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent")
	}
	for name, content := range files {
		// A file may be a script.
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// LocalCluster runs a localcluster command, such as `component stop kruise-daemon`.
func (t *Test) LocalCluster(arguments ...string) {
	t.Helper()
	// Cleanups call this after the test's context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), localClusterTimeout)
	defer cancel()
	if output, err := t.localClusterCommand(ctx, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("localcluster %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
}

// RestoreWith runs a localcluster command when the test ends.
func (t *Test) RestoreWith(arguments ...string) {
	t.Helper()
	t.Cleanup(func() { t.LocalCluster(arguments...) })
}

// WholeAtEnd makes the test wait at its end until all components and nodes of the local cluster and the operator are healthy.
// Call it first: cleanups run in the reverse order of their registration.
func (t *Test) WholeAtEnd() {
	t.Helper()
	t.Cleanup(func() {
		if err := progress.Poll(context.Background(), pollInterval, localClusterTimeout, func(ctx context.Context) error {
			if output, err := t.localClusterCommand(ctx, "status").CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, output)
			}
			_, err := t.operatorPod(ctx)
			return err
		}); err != nil {
			t.Errorf("The cluster is not healthy: %v", err)
		}
	})
}

func (t *Test) localClusterCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(t.Repository, "bin", "localcluster"), arguments...)
	command.Dir = t.Repository
	return command
}
