//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// jobRestartPolicies are the restart policies that Kubernetes allows for pods of Jobs.
var jobRestartPolicies = []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}

// forEachRestartPolicy runs a parallel subtest in its own namespace for each of jobRestartPolicies.
func forEachRestartPolicy(t *testing.T, run func(test *harness.Test, restartPolicy corev1.RestartPolicy)) {
	t.Helper()
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			run(harness.New(t), restartPolicy)
		})
	}
}

func TestCRRDeclaredByPolicy(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		for _, exitCodes := range []v1alpha1.ExitCodes{v1alpha1.ExitCodesRespect, v1alpha1.ExitCodesIgnore} {
			t.Run(string(restartPolicy)+"/"+string(exitCodes), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				policy := harness.Policy(v1alpha1.ModeCRR)
				policy.Spec.ExitCodes = exitCodes
				test.Create(policy, harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
				requireEndedByModeCRR(test, exitCodes)
			})
		}
	}
}

func TestCRRDeclaredByEnv(t *testing.T) {
	harness.Shared(t)
	for _, value := range []string{"true", "TRUE"} {
		for _, restartPolicy := range jobRestartPolicies {
			for _, exitCodes := range []v1alpha1.ExitCodes{v1alpha1.ExitCodesRespect, v1alpha1.ExitCodesIgnore} {
				t.Run(value+"/"+string(restartPolicy)+"/"+string(exitCodes), func(t *testing.T) {
					t.Parallel()
					test := harness.New(t)
					ignored := strconv.FormatBool(exitCodes == v1alpha1.ExitCodesIgnore)
					test.Create(jobWithEnv(restartPolicy, v1alpha1.EnvTerminate, value, v1alpha1.EnvIgnoreExitCode, ignored))
					requireEndedByModeCRR(test, exitCodes)
				})
			}
		}
	}
}

// requireEndedByModeCRR requires a CRR for exitCodes Respect, and a written phase for Ignore: the phase terminates the sidecar
// before the operator creates a CRR.
func requireEndedByModeCRR(test *harness.Test, exitCodes v1alpha1.ExitCodes) {
	test.Helper()
	if exitCodes == v1alpha1.ExitCodesRespect {
		requireEndedByCRR(test, "job")
		return
	}
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: 0})
}

// requireEndedByCRR waits until the Job is Complete and requires that one CRR terminated the sidecar, which handled SIGTERM.
func requireEndedByCRR(test *harness.Test, job string) {
	test.Helper()
	record := test.RequireCompleted(job)
	for _, crr := range test.RequireCRRs(record, 1) {
		if got := strings.Join(crr.Containers, ","); got != harness.SidecarName {
			test.Errorf("The CRR names %s, want %s", got, harness.SidecarName)
		}
	}
	test.RequireImage(record, harness.SidecarName, harness.BusyboxImage)
	requireExit(test, record, harness.SidecarName, 0)
}

// requireExit requires that the container terminated with the exit code and did not restart.
func requireExit(test *harness.Test, record *harness.PodRecord, container string, wanted int32) {
	test.Helper()
	status := record.Container(container)
	switch {
	case status == nil || status.State.Terminated == nil:
		test.Errorf("Container %s of pod %s is not terminated", container, record.Pod.Name)
	case status.State.Terminated.ExitCode != wanted:
		test.Errorf("Container %s of pod %s exited %d, want %d", container, record.Pod.Name, status.State.Terminated.ExitCode, wanted)
	case status.RestartCount != 0:
		test.Errorf("Container %s of pod %s restarted %d times", container, record.Pod.Name, status.RestartCount)
	}
}
