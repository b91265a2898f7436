//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

func TestPolicyStatusAndEvents(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	// The kubelet of a busy node ends the sidecar by a phase, before a CRR would. A respected exit code leaves the end to the CRR.
	policy := with(v1alpha1.ModeCRR, respect)
	test.Create(policy)
	test.EventuallyStatus(policy, "the policy to be Ready with no pods", func(status v1alpha1.PolicyStatus) error {
		return requireReady(status, v1alpha1.ReasonIdle)
	})

	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(job)
	test.EventuallyStatus(policy, "the pod to be matched and waiting", func(status v1alpha1.PolicyStatus) error {
		if status.MatchedPods != 1 || status.WaitingPods != 1 {
			return fmt.Errorf("matchedPods is %d and waitingPods is %d", status.MatchedPods, status.WaitingPods)
		}
		return requireReady(status, v1alpha1.ReasonEnforced)
	})

	gate.Open()
	record := test.RequireCompleted("job")
	test.EventuallyStatus(policy, "the pods to be counted as terminated", func(status v1alpha1.PolicyStatus) error {
		return requireOneTermination(status, record.Pod.Name)
	})
	requireEventOfPolicy(test, test.WaitForEvent(record.Pod, v1alpha1.ReasonTerminating), policy)
	if events := eventsOfOperator(test, record.Pod); len(events) != 1 {
		test.Errorf("The pod has events %v of the operator, want one", events)
	}
	table := strings.Join(strings.Fields(kubectl(test, "get", "stp", "--namespace="+test.Namespace)), " ")
	for _, part := range []string{
		"NAME SIDECARS MODE MATCHED TERMINATING TERMINATED STUCK READY REASON DEGRADED AGE", "policy sidecar CRR 0 0 1 0 True Idle",
	} {
		if !strings.Contains(table, part) {
			test.Errorf("The table is %q, want %q", table, part)
		}
	}
}

func requireReady(status v1alpha1.PolicyStatus, reason v1alpha1.Reason) error {
	ready := harness.Condition(status, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionTrue || ready.Reason != string(reason) {
		return fmt.Errorf("ready is %q because of %q: %s", ready.Status, ready.Reason, ready.Message)
	}
	if status.ObservedGeneration != 1 || ready.ObservedGeneration != 1 {
		return fmt.Errorf("observedGeneration is %d, and %d in Ready", status.ObservedGeneration, ready.ObservedGeneration)
	}
	return nil
}

func requireOneTermination(status v1alpha1.PolicyStatus, pod string) error {
	switch {
	case status.TerminatedPods != 1 || status.FailedAttempts != 0 || status.MatchedPods != 0 || status.StuckPods != 0:
		return fmt.Errorf("the counts are %+v", status)
	case status.LastTerminationTime.IsZero():
		return fmt.Errorf("lastTerminationTime is unset")
	case len(status.RecentTerminations) != 1:
		return fmt.Errorf("recent is %+v", status.RecentTerminations)
	}
	recent := status.RecentTerminations[0]
	if recent.Pod != pod || recent.Mode != v1alpha1.ModeCRR || recent.Outcome != v1alpha1.OutcomeTerminated || recent.DurationMilliseconds <= 0 {
		return fmt.Errorf("recent is %+v", recent)
	}
	return nil
}

func requireEventOfPolicy(test *harness.Test, event corev1.Event, policy *v1alpha1.SidecarTerminationPolicy) {
	test.Helper()
	if event.Related == nil || event.Related.Name != policy.Name || event.Related.Kind != "SidecarTerminationPolicy" {
		test.Errorf("Event %s is related to %+v, want the policy", event.Reason, event.Related)
	}
	if event.Message == "" {
		test.Errorf("Event %s has no message", event.Reason)
	}
}

// eventsOfOperator returns the reasons of the operator's events on the pod. Only they have a related object.
func eventsOfOperator(test *harness.Test, pod *corev1.Pod) []string {
	test.Helper()
	return harness.ReasonsOf(slices.DeleteFunc(test.EventsOn(pod), func(event corev1.Event) bool { return event.Related == nil }))
}

// A DryRun policy reports what it would do, and does it when it is changed to Enforce.
func TestDryRunWritesNothing(t *testing.T) {
	harness.Shared(t)
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(mode)
			policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			test.Create(policy, jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm))
			pod := test.WaitForMain("job")
			requireEventOfPolicy(test, test.WaitForEvent(pod, v1alpha1.ReasonWouldTerminate), policy)
			test.EventuallyStatus(policy, "the status to report the dry run", func(status v1alpha1.PolicyStatus) error {
				ready := harness.Condition(status, v1alpha1.ConditionReady)
				if status.DryRunPods != 1 || status.TerminatingPods != 0 || status.TerminatedPods != 0 || ready.Reason != string(v1alpha1.ReasonDryRun) ||
					len(status.RecentTerminations) != 1 || status.RecentTerminations[0].Pod != pod.Name || status.RecentTerminations[0].Outcome != v1alpha1.OutcomeWouldTerminate {
					return fmt.Errorf("the status is %+v", status)
				}
				return nil
			})
			requireUnwritten(test, test.RecordOf("job"), string(v1alpha1.ReasonWouldTerminate))
			test.MergePatch(policy, `{"spec":{"enforcement":"Enforce"}}`)
			test.RequireCompleted("job")
		})
	}
}
