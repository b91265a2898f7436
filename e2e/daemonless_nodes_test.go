//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// exitCodesOfThree are the exit codes of threeSidecars after SIGTERM.
var exitCodesOfThree = map[string]int32{"exits-zero": 0, "exits-seven": 7, "ignores": 137}

// On a node with a kubelet and without OpenKruise's daemon, the phase terminates all sidecars without a quick-exit image and
// without restarts.
func TestPodPhaseOnDaemonlessNode(t *testing.T) {
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

// Auto would use PodPhase on this node.
func TestImagePolicyOnDaemonlessNode(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeImage), onNode(job, fargateNode))
		requireEndedByImage(test)
	})
}

// Under Never, a kubelet treats a container that it stopped and cannot restart as terminated. If the quick-exit image cannot be
// pulled, the sidecar's exit code therefore counts, and explain warns of it.
func TestUnpullableImageUnderNever(t *testing.T) {
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
			test.MergePatch(job, `{"spec":{"suspend":false}}`)
			c.wait(test, "job")
		})
	}
}

// Without fallback, the pod reports at once that the node does not support its mode.
func TestNoUsableMode(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		node   string
		mode   v1alpha1.Mode
		reason v1alpha1.Reason
	}{
		{fargateNode, v1alpha1.ModeCRR, v1alpha1.ReasonNoKruiseDaemon},
		{virtualNode, v1alpha1.ModePodPhase, v1alpha1.ReasonVirtualNode},
	} {
		t.Run(c.node, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(c.mode)
			policy.Spec.Fallback = v1alpha1.FallbackDisabled
			job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
			test.Create(policy, onNode(job, c.node))
			test.WaitForEvent(test.WaitForMain("job"), c.reason)
			requireStillRunning(test)
		})
	}
}

// requireEndedByPhase waits until the Job named job is Complete and requires that the kubelet stopped the sidecars because of a
// written, guarded phase: they did not restart and have the exit codes.
func requireEndedByPhase(test *harness.Test, exitCodes map[string]int32) {
	test.Helper()
	record := test.RequireCompleted("job")
	test.RequireCRRs(record, 0)
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
