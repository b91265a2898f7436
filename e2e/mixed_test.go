//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

func TestRespectAndIgnoreInOnePod(t *testing.T) {
	harness.Shared(t)
	cases := []struct {
		name               string
		respected, ignored string
		complete           bool
	}{
		{"ignored fails", harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm, true},
		{"ignored is killed", harness.ExitsZeroOnTerm, harness.IgnoresTerm, true},
		{"respected fails", harness.ExitsSevenOnTerm, harness.ExitsZeroOnTerm, false},
		{"both fail", harness.ExitsSevenOnTerm, harness.ExitsSevenOnTerm, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeCRR, "respected", "ignored")
			policy.Spec.Sidecars[0].ExitCodes = v1alpha1.ExitCodesRespect
			job := harness.Job("job", corev1.RestartPolicyNever,
				harness.Container("respected", c.respected), harness.Container("ignored", c.ignored), harness.Main(2))
			job.Spec.BackoffLimit = ptr.To[int32](0)
			test.Create(policy, job)
			if c.complete {
				test.RequireCompleted("job")
				return
			}
			test.WaitForFailed("job")
			if record := test.RequireFinished("job"); record.Pod.Status.Phase != corev1.PodFailed {
				test.Errorf("Pod %s is %s, want Failed", record.Pod.Name, record.Pod.Status.Phase)
			}
		})
	}
}

func TestThreeSidecarsWithThreeModes(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		policy := harness.Policy(v1alpha1.ModeAuto, "by-crr", "by-image", "by-phase")
		policy.Spec.Sidecars[0].Mode, policy.Spec.Sidecars[0].ExitCodes = v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect
		policy.Spec.Sidecars[1].Mode, policy.Spec.Sidecars[1].Image = v1alpha1.ModeImage, harness.QuickExitImage
		policy.Spec.Sidecars[2].Mode = v1alpha1.ModePodPhase
		test.Create(policy, harness.Job("job", restartPolicy,
			harness.Container("by-crr", harness.ExitsZeroOnTerm), harness.Container("by-image", harness.ExitsZeroOnTerm),
			harness.Container("by-phase", harness.ExitsSevenOnTerm), harness.Main(2)))
		record := test.RequireCompleted("job")
		test.RequireImage(record, "by-image", harness.QuickExitImage)
		for _, crr := range test.RequireCRRs(record, 1) {
			if !slices.Equal(crr.Containers, []string{"by-crr"}) {
				test.Errorf("The CRR names %v", crr.Containers)
			}
		}
	})
}

func TestPolicyAndEnvInOnePod(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	byEnv := harness.WithEnv(harness.Container("by-env", harness.ExitsZeroOnTerm), v1alpha1.EnvTerminateWithImage, harness.QuickExitImage)
	policy := harness.Policy(v1alpha1.ModeCRR, "by-policy")
	policy.Spec.ExitCodes = v1alpha1.ExitCodesRespect
	test.Create(policy,
		harness.Job("job", corev1.RestartPolicyNever, byEnv, harness.Container("by-policy", harness.ExitsZeroOnTerm), harness.Main(2)),
	)
	record := test.RequireCompleted("job")
	test.RequireImage(record, "by-env", harness.QuickExitImage)
	test.RequireImage(record, "by-policy", harness.BusyboxImage)
	for _, crr := range test.RequireCRRs(record, 1) {
		if !slices.Equal(crr.Containers, []string{"by-policy"}) {
			test.Errorf("The CRR names %v", crr.Containers)
		}
	}
}

// Of two policies for one container, the one with higher priority takes precedence, and the other one reports Overridden.
func TestOverriddenPolicyStatus(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	overridden := harness.Policy(v1alpha1.ModeCRR)
	overridden.Name = "overridden"
	preferred := harness.Policy(v1alpha1.ModeImage)
	preferred.Name, preferred.Spec.Priority = "preferred", 10
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(overridden, preferred, job)
	test.EventuallyStatus(overridden, "the policy to be Overridden", func(status v1alpha1.PolicyStatus) error {
		if condition := harness.Condition(status, v1alpha1.ConditionOverridden); condition.Status != "True" || condition.Reason != string(v1alpha1.ReasonOverridden) {
			return fmt.Errorf("the conditions are %+v", status.Conditions)
		}
		return nil
	})
	gate.Open()
	requireEndedByImage(test)
	test.EventuallyStatus(preferred, "the preferred policy not to be Overridden", func(status v1alpha1.PolicyStatus) error {
		if condition := harness.Condition(status, v1alpha1.ConditionOverridden); condition.Status != "" || status.TerminatedPods != 1 {
			return fmt.Errorf("terminatedPods is %d and the conditions are %+v", status.TerminatedPods, status.Conditions)
		}
		return nil
	})
}
