//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// A DryRun policy reports what it would do, and does it when it is changed to Enforce.
func TestDryRunWritesNothing(t *testing.T) {
	harness.Shared(t)
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(mode)
			policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			test.Create(policy, harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
			pod := test.WaitForMain("job")
			requireEventOfPolicy(test, test.WaitForEvent(pod, v1alpha1.ReasonWouldTerminate), policy)
			test.EventuallyStatus(policy, "the status to report the dry run", func(status v1alpha1.PolicyStatus) error {
				return requireDryRun(status, pod.Name)
			})
			requireUntouched(test, "job", string(v1alpha1.ReasonWouldTerminate))

			test.Get(policy)
			policy.Spec.Enforcement = v1alpha1.EnforcementEnforce
			if err := test.Client.Update(test.Context(), policy); err != nil {
				test.Fatal(err)
			}
			test.RequireCompleted("job")
		})
	}
}

func requireDryRun(status v1alpha1.PolicyStatus, pod string) error {
	ready := harness.Condition(status, v1alpha1.ConditionReady)
	switch {
	case status.DryRunPods != 1 || status.TerminatingPods != 0 || status.TerminatedPods != 0:
		return fmt.Errorf("the counts are %+v", status)
	case ready.Reason != string(v1alpha1.ReasonDryRun):
		return fmt.Errorf("ready is %s because of %s", ready.Status, ready.Reason)
	case len(status.Recent) != 1 || status.Recent[0].Pod != pod || status.Recent[0].Outcome != v1alpha1.OutcomeWouldTerminate:
		return fmt.Errorf("recent is %+v", status.Recent)
	}
	return nil
}
