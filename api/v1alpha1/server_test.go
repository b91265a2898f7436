// SPDX-License-Identifier: Apache-2.0

//go:build integration

package v1alpha1_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestDefaults(t *testing.T) {
	c := newClient(t)
	for _, kind := range kinds {
		policy := object(t, kind, valid)
		if err := c.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		spec := policy.Object["spec"].(map[string]any)
		if spec["enforcement"] != "Enforce" || fmt.Sprint(spec["priority"]) != "0" {
			t.Errorf("%s: enforcement %v and priority %v, want Enforce and 0", kind, spec["enforcement"], spec["priority"])
		}
		// The other settings must stay unset, so that an environment variable can set them.
		if len(spec) != 4 {
			t.Errorf("%s: the spec became %v", kind, spec)
		}
	}
}

func TestStatusSubresource(t *testing.T) {
	c := newClient(t)
	policy := typed("status")
	policy.Status.MatchedPods = 7
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if policy.Status.MatchedPods != 0 {
		t.Error("a creation set the status")
	}
	policy.Status, policy.Spec.Priority = fullStatus(10), 5
	if err := c.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if policy.Spec.Priority != 0 || policy.Generation != 1 {
		t.Errorf("a write of the status changed the spec: priority %d, generation %d", policy.Spec.Priority, policy.Generation)
	}
	if policy.Status.MatchedPods != 9 || len(policy.Status.RecentTerminations) != 10 || len(policy.Status.Conditions) != 1 {
		t.Errorf("the status became %+v", policy.Status)
	}
	policy.Status.MatchedPods, policy.Spec.Priority = 1, 5
	if err := c.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if policy.Status.MatchedPods != 9 || policy.Spec.Priority != 5 || policy.Generation != 2 {
		t.Errorf("after a write of the spec: %d matched, priority %d, generation %d", policy.Status.MatchedPods, policy.Spec.Priority, policy.Generation)
	}
}

func TestInvalidStatus(t *testing.T) {
	c := newClient(t)
	policy := typed("bounded-status")
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	for name, rejected := range map[string]struct {
		change         func(*v1alpha1.PolicyStatus)
		field, message string
	}{
		"eleven recent results": {func(s *v1alpha1.PolicyStatus) { *s = fullStatus(11) }, "status.recentTerminations", "at most 10 items"},
		"an unknown outcome":    {func(s *v1alpha1.PolicyStatus) { s.RecentTerminations[0].Outcome = "Vanished" }, "status.recentTerminations[0].outcome", "Unsupported value"},
		"a condition without a reason": {func(s *v1alpha1.PolicyStatus) { s.Conditions[0].Reason = "" },
			"status.conditions[0].reason", "at least 1 char"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := policy.DeepCopy()
			changed.Status = fullStatus(10)
			rejected.change(&changed.Status)
			wantRejected(t, c.Status().Update(t.Context(), changed), rejected.field, rejected.message)
		})
	}
}

// A zero differs from an unset field in the spec, and is a result in the status.
func TestZerosAreStored(t *testing.T) {
	c := newClient(t)
	policy := typed("zeros")
	policy.Spec.DrainSeconds, policy.Spec.Mode = ptr.To[int32](0), v1alpha1.ModeCRR
	policy.Spec.Sidecars[0].DrainSeconds = ptr.To[int32](5)
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	policy.Status.ObservedGeneration = 1
	if err := c.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	stored := object(t, "SidecarTerminationPolicy", valid)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(policy), stored); err != nil {
		t.Fatal(err)
	}
	spec, status := stored.Object["spec"].(map[string]any), stored.Object["status"].(map[string]any)
	if got := fmt.Sprintf("%v %v %v", spec["drainSeconds"], spec["mode"], spec["sidecars"]); got != "0 CRR [map[drainSeconds:5 name:proxy]]" {
		t.Errorf("drainSeconds, mode and sidecars are stored as %s", got)
	}
	for _, count := range []string{"matchedPods", "waitingPods", "terminatingPods", "stuckPods", "terminatedPods", "failedAttempts"} {
		if fmt.Sprint(status[count]) != "0" {
			t.Errorf("%s is stored as %v, want 0", count, status[count])
		}
	}
}

func typed(name string) *v1alpha1.SidecarTerminationPolicy {
	return &v1alpha1.SidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: v1alpha1.PolicySpec{
			Sidecars: []v1alpha1.Sidecar{{Name: "proxy"}},
		}},
	}
}

// fullStatus returns a status with every field and this number of recent results.
func fullStatus(recent int) v1alpha1.PolicyStatus {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	status := v1alpha1.PolicyStatus{
		ObservedGeneration:  1,
		MatchedPods:         9,
		LastTerminationTime: &now,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(v1alpha1.ReasonEnforced), LastTransitionTime: now,
		}},
	}
	for i := range recent {
		status.RecentTerminations = append(status.RecentTerminations, v1alpha1.RecentTermination{
			Pod: fmt.Sprintf("pod-%d", i), Mode: v1alpha1.ModeCRR, Outcome: v1alpha1.OutcomeTerminated, Time: &now,
		})
	}
	return status
}
