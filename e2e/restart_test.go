//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
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
			test.RequireCompleted("job")
		})
	}
}

// slowPod returns a pod with a long grace period, so that the operator can restart while the sidecar terminates.
func slowPod(script string, seconds int) corev1.PodTemplateSpec {
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(script), harness.Main(seconds))
	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](15)
	return template
}

func TestOperatorRestarts(t *testing.T) {
	harness.Exclusive(t)
	t.Run("while main runs", func(t *testing.T) {
		test := harness.New(t)
		job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
		gate := test.Gate(&job.Spec.Template)
		policy := harness.Policy(v1alpha1.ModeCRR)
		policy.Spec.ExitCodes = v1alpha1.ExitCodesRespect
		test.Create(policy, job)
		test.WaitForRunning("job")
		test.DeleteOperatorPod()
		gate.Open()
		requireEndedByCRR(test, "job")
		test.WaitForOperator()
	})
	const exitsZeroSlowly = `trap 'sleep 8; exit 0' TERM; sleep 3600 & wait`
	for _, c := range []struct {
		mode      v1alpha1.Mode
		exitCodes v1alpha1.ExitCodes
		script    string
		crrs      int
	}{
		{v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect, exitsZeroSlowly, 1},
		{v1alpha1.ModeCRR, v1alpha1.ExitCodesIgnore, harness.IgnoresTerm, 0},
		{v1alpha1.ModeImage, v1alpha1.ExitCodesIgnore, harness.IgnoresTerm, 0},
		{v1alpha1.ModePodPhase, v1alpha1.ExitCodesIgnore, harness.IgnoresTerm, 0},
	} {
		t.Run(fmt.Sprintf("while sidecar terminates/%s/%s", c.mode, c.exitCodes), func(t *testing.T) {
			test := harness.New(t)
			job := harness.Job("job", corev1.RestartPolicyNever)
			job.Spec.Template = slowPod(c.script, 2)
			policy := harness.Policy(c.mode)
			policy.Spec.ExitCodes = c.exitCodes
			test.Create(policy, job)
			pod := test.WaitForMain("job")
			test.WaitForEvent(pod, v1alpha1.ReasonTerminating)
			test.DeleteOperatorPod()
			test.WaitForComplete("job")
			test.RequireCRRs(test.RequireSucceeded("job"), c.crrs)
			test.WaitForOperator()
		})
	}
}
