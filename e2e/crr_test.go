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

// jobRestartPolicies are those that Kubernetes allows for the pods of a Job.
var jobRestartPolicies = []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}

func TestCRREndsSidecarNamedByPolicy(t *testing.T) {
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

func TestCRREndsSidecarNamedByEnv(t *testing.T) {
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

// requireEndedByModeCRR requires of the Job named job what the mode does: a request, or the phase where the exit code
// does not count, for that ends the sidecar before Kruise need be asked.
func requireEndedByModeCRR(test *harness.Test, exitCodes v1alpha1.ExitCodes) {
	test.Helper()
	if exitCodes == v1alpha1.ExitCodesRespect {
		requireEndedByRequest(test, "job")
		return
	}
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: 0})
}

// requireEndedByRequest waits for the Job to be Complete and requires that one ContainerRecreateRequest ended the
// sidecar, by its own signal handler.
func requireEndedByRequest(test *harness.Test, job string) {
	test.Helper()
	test.WaitForComplete(job)
	record := test.RequireSucceeded(job)
	for _, request := range test.RequireRequests(record, 1) {
		if got := strings.Join(request.Containers, ","); got != harness.SidecarName {
			test.Errorf("The request was to name %s and names %s", harness.SidecarName, got)
		}
	}
	test.RequireImage(record, harness.SidecarName, harness.BusyboxImage)
	requireExit(test, record, harness.SidecarName, 0)
}

// requireExit requires that the container ended with the exit code and was not started again.
func requireExit(test *harness.Test, record *harness.PodRecord, container string, wanted int32) {
	test.Helper()
	status := record.Container(container)
	switch {
	case status == nil || status.State.Terminated == nil:
		test.Errorf("Container %s of pod %s has not ended", container, record.Pod.Name)
	case status.State.Terminated.ExitCode != wanted:
		test.Errorf("Container %s of pod %s was to exit %d and exited %d", container, record.Pod.Name, wanted, status.State.Terminated.ExitCode)
	case status.RestartCount != 0:
		test.Errorf("Container %s of pod %s was started %d more times", container, record.Pod.Name, status.RestartCount)
	}
}
