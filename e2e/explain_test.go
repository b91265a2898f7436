//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// buildOperator builds the operator's program once and returns its path.
var buildOperator = sync.OnceValues(func() (string, error) {
	cluster, err := harness.Connect()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cluster.Repository, "bin", "sidecar-termination-operator")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = cluster.Repository
	if output, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(output))
	}
	return program, nil
})

// buildPlugin builds the program and returns its path by the name by which kubectl finds it.
var buildPlugin = sync.OnceValues(func() (string, error) {
	program, err := buildOperator()
	if err != nil {
		return "", err
	}
	plugin := filepath.Join(filepath.Dir(program), "kubectl-sidecar_termination")
	if err := os.Remove(plugin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return plugin, os.Symlink(filepath.Base(program), plugin)
})

// plugin runs the plugin on the cluster under test and returns its output, with each run of blanks as one, and exit code.
func plugin(test *harness.Test, arguments ...string) (string, int) {
	test.Helper()
	program, err := buildPlugin()
	if err != nil {
		test.Fatalf("Build the plugin: %v", err)
	}
	ctx, cancel := context.WithTimeout(test.Context(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(test))
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		test.Fatalf("Run the plugin: %v", err)
	}
	test.Logf("kubectl sidecar-termination %s\n%s", strings.Join(arguments, " "), output)
	return strings.Join(strings.Fields(string(output)), " "), command.ProcessState.ExitCode()
}

func kubeconfig(test *harness.Test) string {
	if file := os.Getenv("KUBECONFIG"); file != "" {
		return file
	}
	return filepath.Join(test.Repository, ".cluster", "kubeconfig")
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

func TestExplainFollowsAJobToItsEnd(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(harness.Policy(v1alpha1.ModeCRR), job)
	test.WaitForRunning("job")

	output, code := plugin(test, "explain", "job/job", "-n", test.Namespace)
	requireOutput(test, output, code, 0, "Waiting (MainContainersRunning): waiting for main containers to be done: main",
		"sidecar running", "SidecarTerminationPolicy/policy", "CRR with the phase before it, then Image mode CRR (policy)", "image localhost/quick-exit:1 (operator's flag)")
	output, code = plugin(test, "explain", "policy/policy", "-n", test.Namespace)
	requireOutput(test, output, code, 0, "sidecar Waiting MainContainersRunning")

	gate.Open()
	output, code = plugin(test, "explain", "job/job", "-n", test.Namespace, "--watch")
	requireOutput(test, output, code, 0, "Terminated (Terminated): every sidecar has ended", "job: complete", "PodPhase for CRR 1",
		"Terminating: main containers are done; ending sidecar by mode PodPhase, the first step of mode CRR")
	test.RequireSucceeded("job")
}

func TestExplainAndLintFindAJobThatHangs(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	test.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
	test.WaitForMain("job")

	for _, subcommand := range [][]string{{"explain", "job/job"}, {"lint"}} {
		output, code := plugin(test, append(subcommand, "-n", test.Namespace)...)
		requireOutput(test, output, code, 1, "problem MayHang: container sidecar runs on although others have ended")
	}
	test.Create(harness.Policy(v1alpha1.ModeAuto))
	test.WaitForComplete("job")
	output, code := plugin(test, "lint", "-n", test.Namespace)
	requireOutput(test, output, code, 0, "no Job, no CronJob")
}

func TestCheckOfTheCluster(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	output, code := plugin(test, "check")
	requireOutput(test, output, code, 0, "ok definition sidecarterminationpolicies.sidecartermination.dev serves version v1alpha1 with every field",
		"sidecar-termination-controller-manager is ready", "acts: it holds lease sidecar-termination-system/sidecar-termination-operator.sidecartermination.dev",
		"may do all that the operator needs", "ok kruise-mutating-webhook-configuration guards requests")
}
