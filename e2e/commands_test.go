//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/settings"
)

// buildPlugin builds the plugin once and returns its path.
var buildPlugin = sync.OnceValues(func() (string, error) {
	cluster, err := harness.Connect()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cluster.Repository, "bin", settings.PluginProgram)
	build := exec.Command("go", "build", "-o", program, "./cmd/"+settings.PluginProgram)
	build.Dir = cluster.Repository
	if output, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(output))
	}
	return program, nil
})

// commandTimeout is for one command.
const commandTimeout = 5 * time.Minute

// kubectl runs kubectl on the cluster and returns its output.
func kubectl(test *harness.Test, arguments ...string) string {
	test.Helper()
	ctx, cancel := context.WithTimeout(test.Context(), commandTimeout)
	defer cancel()
	output, err := test.TryKubectl(ctx, arguments...)
	if err != nil {
		test.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// plugin runs the plugin and returns its output, with whitespace collapsed, and its exit code.
func plugin(test *harness.Test, arguments ...string) (string, int) {
	test.Helper()
	program, err := buildPlugin()
	if err != nil {
		test.Fatalf("Build the plugin: %v", err)
	}
	ctx, cancel := context.WithTimeout(test.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+test.Kubeconfig)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		test.Fatalf("Run the plugin: %v", err)
	}
	test.Logf("kubectl sidecar-termination %s\n%s", strings.Join(arguments, " "), output)
	return strings.Join(strings.Fields(string(output)), " "), command.ProcessState.ExitCode()
}

func requireOutput(test *harness.Test, output string, code, wantCode int, parts ...string) {
	test.Helper()
	if code != wantCode {
		test.Errorf("The exit code is %d, want %d", code, wantCode)
	}
	for _, part := range parts {
		if !strings.Contains(output, part) {
			test.Errorf("The output lacks %q", part)
		}
	}
}

func TestCheckPasses(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	output, code := plugin(test, "check")
	requireOutput(test, output, code, 0, "ok CRD sidecarterminationpolicies.sidecartermination.dev serves version v1alpha1 with every field",
		"sidecar-termination-controller-manager is ready", "is the leader: it holds lease "+settings.Namespace+"/"+settings.LeaseName,
		"permissions that the operator needs", "ok kruise-mutating-webhook-configuration guards CRRs")
}
