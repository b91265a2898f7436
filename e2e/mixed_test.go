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

// One sidecar's exit code counts and the other's does not.
func TestRespectBesideIgnore(t *testing.T) {
	harness.Shared(t)
	cases := []struct {
		name               string
		respected, ignored string
		complete           bool
	}{
		{"the ignored one fails", harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm, true},
		{"the ignored one is killed", harness.ExitsZeroOnTerm, harness.IgnoresTerm, true},
		{"the respected one fails", harness.ExitsSevenOnTerm, harness.ExitsZeroOnTerm, false},
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
				test.WaitForComplete("job")
				test.RequireSucceeded("job")
				return
			}
			test.WaitForFailed("job")
			if record := test.RequireFinished("job"); record.Pod.Status.Phase != corev1.PodFailed {
				test.Errorf("Pod %s was to be Failed and is %s", record.Pod.Name, record.Pod.Status.Phase)
			}
		})
	}
}

func TestThreeSidecarsWithThreeModes(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeAuto, "by-request", "by-image", "by-phase")
			policy.Spec.Sidecars[0].Mode, policy.Spec.Sidecars[0].ExitCodes = v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect
			policy.Spec.Sidecars[1].Mode, policy.Spec.Sidecars[1].Image = v1alpha1.ModeImage, harness.QuickExitImage
			policy.Spec.Sidecars[2].Mode = v1alpha1.ModePodPhase
			test.Create(policy, harness.Job("job", restartPolicy,
				harness.Container("by-request", harness.ExitsZeroOnTerm), harness.Container("by-image", harness.ExitsZeroOnTerm),
				harness.Container("by-phase", harness.ExitsSevenOnTerm), harness.Main(2)))
			test.WaitForComplete("job")
			record := test.RequireSucceeded("job")
			test.RequireImage(record, "by-image", harness.QuickExitImage)
			for _, request := range test.RequireRequests(record, 1) {
				if !slices.Equal(request.Containers, []string{"by-request"}) {
					test.Errorf("The request names %v", request.Containers)
				}
			}
		})
	}
}

func TestPolicyBesideEnv(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	byEnv := harness.WithEnv(harness.Container("by-env", harness.ExitsZeroOnTerm), v1alpha1.EnvTerminateWithImage, harness.QuickExitImage)
	policy := harness.Policy(v1alpha1.ModeCRR, "by-policy")
	policy.Spec.ExitCodes = v1alpha1.ExitCodesRespect
	test.Create(policy,
		harness.Job("job", corev1.RestartPolicyNever, byEnv, harness.Container("by-policy", harness.ExitsZeroOnTerm), harness.Main(2)),
	)
	test.WaitForComplete("job")
	record := test.RequireSucceeded("job")
	test.RequireImage(record, "by-env", harness.QuickExitImage)
	test.RequireImage(record, "by-policy", harness.BusyboxImage)
	for _, request := range test.RequireRequests(record, 1) {
		if !slices.Equal(request.Containers, []string{"by-policy"}) {
			test.Errorf("The request names %v", request.Containers)
		}
	}
}

// Of two policies for one container the one with the higher priority decides, and the other one says so.
func TestOverriddenPolicySaysSo(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	loser := harness.Policy(v1alpha1.ModeCRR)
	loser.Name = "loser"
	winner := harness.Policy(v1alpha1.ModeImage)
	winner.Name, winner.Spec.Priority = "winner", 10
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(loser, winner, job)
	test.EventuallyStatus(loser, "the losing policy to be Overridden", func(status v1alpha1.PolicyStatus) error {
		if overridden := harness.Condition(status, v1alpha1.ConditionOverridden); overridden.Status != "True" || overridden.Reason != string(v1alpha1.ReasonOverridden) {
			return fmt.Errorf("the conditions are %+v", status.Conditions)
		}
		return nil
	})
	gate.Open()
	requireEndedByImage(test)
	test.EventuallyStatus(winner, "the winning policy not to be Overridden", func(status v1alpha1.PolicyStatus) error {
		if overridden := harness.Condition(status, v1alpha1.ConditionOverridden); overridden.Status != "" || status.TerminatedPods != 1 {
			return fmt.Errorf("terminatedPods is %d and the conditions are %+v", status.TerminatedPods, status.Conditions)
		}
		return nil
	})
}
