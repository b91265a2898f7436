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

func TestImageDeclaredByPolicy(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		test.Create(
			harness.Policy(v1alpha1.ModeImage),
			harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)),
		)
		requireEndedByImage(test)
	})
}

// OpenKruise ignores a lone WITH_IMAGE variable on real nodes.
func TestImageDeclaredByEnv(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		test.Create(jobWithEnv(restartPolicy, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage))
		requireEndedByImage(test)
	})
}

func TestPolicyImageOverridesEnv(t *testing.T) {
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

// requireEndedByImage waits until the Job named job is Complete and requires that the quick-exit image replaced the sidecar,
// without a CRR.
func requireEndedByImage(test *harness.Test) {
	test.Helper()
	record := test.RequireCompleted("job")
	test.RequireCRRs(record, 0)
	test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
	if record.Pod.Annotations[v1alpha1.AnnotationImageSwap] == "" {
		test.Errorf("Pod %s has no annotation %s", record.Pod.Name, v1alpha1.AnnotationImageSwap)
	}
	sidecar := record.Container(harness.SidecarName)
	if sidecar == nil || sidecar.State.Terminated == nil || sidecar.State.Terminated.ExitCode != 0 || sidecar.RestartCount != 1 {
		test.Errorf("The sidecar did not restart once and exit 0: %+v", sidecar)
	}
}
