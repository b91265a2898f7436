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

func TestPolicyCreatedAfterMainsEnded(t *testing.T) {
	harness.Shared(t)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
			test.WaitForMain("job")
			test.Create(harness.Policy(mode))
			test.WaitForComplete("job")
			test.RequireSucceeded("job")
		})
	}
}

// slowJob returns a pod whose sidecar needs its whole grace period, so that the operator can be restarted meanwhile.
func slowJob(seconds int) corev1.PodTemplateSpec {
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.IgnoresTerm), harness.Main(seconds))
	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](15)
	return template
}

func TestOperatorRestarts(t *testing.T) {
	harness.Exclusive(t)
	t.Run("while the main container runs", func(t *testing.T) {
		test := harness.New(t)
		job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
		gate := test.Gate(&job.Spec.Template)
		test.Create(harness.Policy(v1alpha1.ModeCRR), job)
		test.WaitForRunning("job")
		test.DeleteOperatorPod()
		gate.Open()
		requireEndedByRequest(test, "job")
		test.WaitForOperator()
	})
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase} {
		t.Run("while the sidecar ends by mode "+string(mode), func(t *testing.T) {
			test := harness.New(t)
			job := harness.Job("job", corev1.RestartPolicyNever)
			job.Spec.Template = slowJob(2)
			test.Create(harness.Policy(mode), job)
			test.WaitForMain("job")
			var pod *corev1.Pod
			test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
			test.WaitForEvent(pod, v1alpha1.ReasonTerminating)
			test.DeleteOperatorPod()
			test.WaitForComplete("job")
			record := test.RequireSucceeded("job")
			if mode == v1alpha1.ModeCRR {
				test.RequireRequests(record, 1)
			} else {
				test.RequireRequests(record, 0)
			}
			test.WaitForOperator()
		})
	}
}
