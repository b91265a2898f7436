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
	policy := harness.Policy(v1alpha1.ModeCRR)
	test.Create(policy)
	test.EventuallyStatus(policy, "the policy to be Ready with no pods", func(status v1alpha1.PolicyStatus) error {
		return requireReady(status, v1alpha1.ReasonNoPodsMatched)
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
	test.EventuallyStatus(policy, "the pod to be counted as terminated", func(status v1alpha1.PolicyStatus) error {
		return requireOneTermination(status, record.Pod.Name)
	})
	requireEventOfPolicy(test, test.WaitForEvent(record.Pod, v1alpha1.ReasonTerminating), policy)
	if events := eventsOfOperator(test, record.Pod); len(events) != 1 {
		test.Errorf("The pod has events %v of the operator, want one", events)
	}
	requireRow(test, policy.Name, map[string]string{
		"Mode": "CRR", "Enforcement": "Enforce", "Matched": "0", "Terminating": "0", "Terminated": "1", "Stuck": "0", "Ready": "True",
	})
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
	case len(status.Recent) != 1:
		return fmt.Errorf("recent is %+v", status.Recent)
	}
	recent := status.Recent[0]
	if recent.Pod != pod || recent.Mode != v1alpha1.ModeCRR || recent.Outcome != v1alpha1.OutcomeTerminated || recent.Milliseconds <= 0 {
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

// requireRow requires the values of the policy's row in `kubectl get stp`.
func requireRow(test *harness.Test, name string, wanted map[string]string) {
	test.Helper()
	table := test.Table("sidecarterminationpolicies")
	var columns []string
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			columns = append(columns, column.Name)
		}
	}
	if got, want := strings.Join(columns, " "), "Name Mode Enforcement Matched Terminating Terminated Stuck Ready Reason Age"; got != want {
		test.Errorf("The columns are %q, want %q", got, want)
	}
	for _, row := range table.Rows {
		if fmt.Sprint(row.Cells[0]) != name {
			continue
		}
		for column, value := range wanted {
			index := slices.IndexFunc(table.ColumnDefinitions, func(definition metav1.TableColumnDefinition) bool { return definition.Name == column })
			if index < 0 || fmt.Sprint(row.Cells[index]) != value {
				test.Errorf("Column %s is not %s in row %v", column, value, row.Cells)
			}
		}
		return
	}
	test.Errorf("Policy %s has no row", name)
}
