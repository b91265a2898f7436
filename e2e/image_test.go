//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

func TestImageEndsSidecarNamedByPolicy(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(
				harness.Policy(v1alpha1.ModeImage),
				harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)),
			)
			requireEndedByImage(test)
		})
	}
}

// A variable WITH_IMAGE alone is enough, on real nodes as well.
func TestImageEndsSidecarNamedByEnv(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(jobWithEnv(restartPolicy, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage))
			requireEndedByImage(test)
		})
	}
}

// An image of the policy wins over that of the container's variable.
func TestImageOfPolicyWinsOverEnv(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeImage), jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminateWithImage, "registry.invalid/never-pulled:1"))
	requireEndedByImage(test)
}

// jobWithEnv returns a Job whose sidecar has the environment variables.
func jobWithEnv(restartPolicy corev1.RestartPolicy, namesAndValues ...string) *batchv1.Job {
	sidecar := harness.WithEnv(harness.Sidecar(harness.ExitsZeroOnTerm), namesAndValues...)
	return harness.Job("job", restartPolicy, sidecar, harness.Main(2))
}

// requireEndedByImage waits for the Job named job to be Complete and requires that the quick-exit image ended the sidecar, and
// that no ContainerRecreateRequest was made.
func requireEndedByImage(test *harness.Test) {
	test.Helper()
	test.WaitForComplete("job")
	record := test.RequireSucceeded("job")
	test.RequireRequests(record, 0)
	test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
	if record.Pod.Annotations[v1alpha1.AnnotationImageSwap] == "" {
		test.Errorf("Pod %s has no annotation %s", record.Pod.Name, v1alpha1.AnnotationImageSwap)
	}
	sidecar := record.Container(harness.SidecarName)
	if sidecar == nil || sidecar.State.Terminated == nil || sidecar.State.Terminated.ExitCode != 0 || sidecar.RestartCount != 1 {
		test.Errorf("The sidecar was to be started once more and to exit 0: %+v", sidecar)
	}
}
