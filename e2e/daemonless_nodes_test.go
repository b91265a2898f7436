//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// exitCodesOfThree are those with which threeSidecars end when they are stopped.
var exitCodesOfThree = map[string]int32{"exits-zero": 0, "exits-seven": 7, "ignores": 137}

// A node with a kubelet and no daemon needs no image: the phase ends all sidecars, whatever they exit with, and the image
// that cannot be pulled is not touched. No restart is added, so that a backoffLimit of 1 is enough.
func TestDaemonlessNodeNeedsNoImage(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run("policy/"+string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeAuto, "exits-zero", "exits-seven", "ignores")
			policy.Spec.Image = missingImage
			job := jobWithThreeSidecars(restartPolicy)
			job.Spec.BackoffLimit = ptr.To[int32](1)
			test.Create(policy, onNode(job, fargateNode))
			requireEndedByPhase(test, exitCodesOfThree)
		})
		t.Run("env/"+string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithThreeSidecars(restartPolicy, v1alpha1.EnvTerminate, "true", v1alpha1.EnvTerminateWithImage, missingImage)
			job.Spec.BackoffLimit = ptr.To[int32](1)
			test.Create(onNode(job, fargateNode))
			requireEndedByPhase(test, exitCodesOfThree)
		})
	}
}

// A declared mode stays what it is.
func TestImagePolicyOnDaemonlessNode(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
			test.Create(harness.Policy(v1alpha1.ModeImage), onNode(job, fargateNode))
			requireEndedByImage(test)
		})
	}
}

// Under Never a kubelet takes a container that it stopped and could not start again for ended. Where mode Image is declared
// and the image cannot be pulled, the exit code of the stop therefore counts: explain says so beforehand.
func TestImageThatCannotBePulledUnderNever(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		name, script string
		wait         func(test *harness.Test, job string)
	}{
		{"exits 7", harness.ExitsSevenOnTerm, (*harness.Test).WaitForFailed},
		{"exits 0", harness.ExitsZeroOnTerm, (*harness.Test).WaitForComplete},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeImage)
			policy.Spec.Image = missingImage
			job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(c.script), harness.Main(2))
			job.Spec.BackoffLimit, job.Spec.Suspend = ptr.To[int32](0), ptr.To(true)
			test.Create(policy, onNode(job, fargateNode))
			output, code := plugin(test, "explain", "job/job", "-n", test.Namespace)
			requireOutput(test, output, code, 0, "node without OpenKruise's daemon Image, then PodPhase", "mode Image (policy)",
				"warning ImagePullRisk: under restartPolicy Never the pod fails if the node cannot pull image "+missingImage)
			resume := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`))
			if err := test.Client.Patch(test.Context(), job, resume); err != nil {
				test.Fatalf("Resume the Job: %v", err)
			}
			c.wait(test, "job")
		})
	}
}

// Mode CRR without another one is not tried where it cannot be used.
func TestNoModeIsUsableOnDaemonlessNode(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	policy := harness.Policy(v1alpha1.ModeCRR)
	policy.Spec.Fallback = v1alpha1.FallbackDisabled
	test.Create(policy, onNode(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)), fargateNode))
	test.WaitForMain("job")
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	test.WaitForEvent(pod, v1alpha1.ReasonNoKruiseDaemon)
	requireStillRunning(test)
}

// requireEndedByPhase waits for the Job named job to be Complete and requires that the kubelet stopped the sidecars for a
// written phase: none was started again, each has the exit code of its stop, and the phase, which is guarded, stayed.
func requireEndedByPhase(test *harness.Test, exitCodes map[string]int32) {
	test.Helper()
	test.WaitForComplete("job")
	record := test.RequireSucceeded("job")
	test.RequireRequests(record, 0)
	for _, annotation := range []string{v1alpha1.AnnotationPodPhase, v1alpha1.AnnotationPhaseGuard} {
		if record.Pod.Annotations[annotation] == "" {
			test.Errorf("Pod %s has no annotation %s", record.Pod.Name, annotation)
		}
	}
	for name, exitCode := range exitCodes {
		test.RequireImage(record, name, harness.BusyboxImage)
		requireExit(test, record, name, exitCode)
	}
}
