//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	kruiseDaemon    = "kruise-daemon"
	shortDeadline   = 5
	fallbackSlack   = 20 * time.Second
	recoveryTimeout = 5 * time.Minute
)

// The operator falls back to the next mode within the grace period plus the deadline.
func TestKruiseDaemonDown(t *testing.T) {
	harness.Exclusive(t)
	stopDaemon(t)

	t.Run("fallback", func(t *testing.T) {
		for _, exitCodes := range []v1alpha1.ExitCodes{v1alpha1.ExitCodesIgnore, v1alpha1.ExitCodesRespect} {
			t.Run(string(exitCodes), func(t *testing.T) {
				test := harness.New(t)
				policy := crrPolicy(v1alpha1.FallbackEnabled, exitCodes)
				test.Create(policy, harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
				test.WaitForMain("job")
				began := time.Now()
				test.WaitForComplete("job")
				bound := (harness.GracePeriodSeconds+shortDeadline)*time.Second + fallbackSlack
				if took := time.Since(began); took > bound {
					test.Errorf("The Job was Complete %s after its main container, want at most %s", took, bound)
				}
				record := test.RequireSucceeded("job")
				if exitCodes == v1alpha1.ExitCodesRespect {
					test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
					test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback)
				}
			})
		}
	})

	t.Run("stuck without fallback", func(t *testing.T) {
		test := harness.New(t)
		policy := crrPolicy(v1alpha1.FallbackDisabled, v1alpha1.ExitCodesRespect)
		test.Create(policy, harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
		pod := test.WaitForMain("job")
		stuck := test.WaitForEvent(pod, v1alpha1.ReasonStuck)
		if stuck.Type != corev1.EventTypeWarning {
			test.Errorf("Event %s is of type %s", stuck.Reason, stuck.Type)
		}
		test.EventuallyStatus(policy, "the pod to be stuck", func(status v1alpha1.PolicyStatus) error {
			ready, degraded := harness.Condition(status, v1alpha1.ConditionReady), harness.Condition(status, v1alpha1.ConditionDegraded)
			if status.StuckPods != 1 || ready.Status != metav1.ConditionTrue || degraded.Reason != string(v1alpha1.ReasonStuck) {
				return fmt.Errorf("stuckPods is %d, Ready is %s, Degraded is %+v", status.StuckPods, ready.Status, degraded)
			}
			return nil
		})

		test.LocalCluster("component", "start", kruiseDaemon)
		test.WaitForCompleteWithin("job", recoveryTimeout)
		test.RequireSucceeded("job")
		test.EventuallyStatus(policy, "no pod to be stuck", func(status v1alpha1.PolicyStatus) error {
			degraded := harness.Condition(status, v1alpha1.ConditionDegraded)
			if status.StuckPods != 0 || status.TerminatedPods != 1 || degraded.Type != "" {
				return fmt.Errorf("stuckPods is %d, terminatedPods is %d, Degraded is %+v", status.StuckPods, status.TerminatedPods, degraded)
			}
			return nil
		})
	})
}

// stopDaemon stops OpenKruise's daemon until the test ends.
func stopDaemon(t *testing.T) {
	t.Helper()
	test := harness.New(t)
	test.RestoreWith("component", "start", kruiseDaemon)
	test.LocalCluster("component", "stop", kruiseDaemon)
}

func crrPolicy(fallback v1alpha1.Fallback, exitCodes v1alpha1.ExitCodes) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeCRR)
	policy.Spec.Image = harness.QuickExitImage
	policy.Spec.Fallback, policy.Spec.ExitCodes = fallback, exitCodes
	policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](shortDeadline)
	return policy
}
