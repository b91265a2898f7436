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

// The operator restarts while main containers run, and while sidecars terminate.
func TestOperatorRestarts(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	const exitsZeroSlowly = `trap 'sleep 10; exit 0' TERM; sleep 3600 & wait`
	cases := []struct {
		mode           v1alpha1.Mode
		exitCodePolicy v1alpha1.ExitCodePolicy
		script         string
		crrs           int
	}{
		{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect, exitsZeroSlowly, 1},
		{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 1},
		{v1alpha1.ModeImage, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 0},
		{v1alpha1.ModePodPhase, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 0},
	}
	gate := test.Gate()
	for i, c := range cases {
		policy := named(harness.Policy(c.mode), fmt.Sprintf("policy-%d", i))
		policy.Spec.ExitCodePolicy = c.exitCodePolicy
		test.Create(policy)
		for _, name := range []string{"runs", "ends"} {
			job := harness.Job(fmt.Sprintf("%s-%d", name, i), corev1.RestartPolicyNever, harness.Sidecar(c.script), harness.Main(2))
			job.Spec.Template.Labels = policy.Spec.PodSelector.MatchLabels
			// Longer than the operator takes to restart.
			job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](15)
			if name == "runs" {
				gate.Hold(&job.Spec.Template)
			}
			test.Create(job)
		}
	}
	for i := range cases {
		test.WaitForRunning(fmt.Sprintf("runs-%d", i))
		test.WaitForEvent(test.WaitForMain(fmt.Sprintf("ends-%d", i)), v1alpha1.ReasonTerminating)
	}
	test.DeleteOperatorPod()
	gate.Open()
	for i, c := range cases {
		for _, name := range []string{"runs", "ends"} {
			test.RequireCRRs(test.RequireCompleted(fmt.Sprintf("%s-%d", name, i)), c.crrs)
		}
	}
	test.WaitForOperator()
}
