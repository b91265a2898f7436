//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// ownLabels returns labels that no other namespace has: a policy that an interrupted run has left selects none of this one.
func ownLabels() map[string]string {
	return map[string]string{"e2e.sidecartermination.dev/team": rand.String(10)}
}

// A cluster policy reaches the namespaces that it selects and no other.
func TestClusterPolicySelectsNamespaces(t *testing.T) {
	harness.Shared(t)
	labels := ownLabels()
	selected := harness.NewWithLabels(t, labels)
	other := harness.New(t)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: selected.Namespace},
		Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{
			PolicySpec:        harness.PolicySpec(v1alpha1.ModeAuto),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	selected.CreateForCluster(policy)

	other.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
	other.WaitForMain("job")
	selected.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	selected.WaitForComplete("job")
	record := selected.RequireSucceeded("job")
	requireUntouched(other, "job")

	selected.Eventually("the pod to be counted as terminated", harness.StatusTimeout, func(ctx context.Context) error {
		if err := selected.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		status := policy.Status
		if status.TerminatedPods != 1 || len(status.Recent) != 1 || status.Recent[0].Pod != record.Pod.Name || status.Recent[0].Namespace != selected.Namespace {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
}

// A policy of the pod's own namespace wins over one for the cluster.
func TestNamespacedPolicyWinsOverClusterPolicy(t *testing.T) {
	harness.Shared(t)
	labels := ownLabels()
	test := harness.NewWithLabels(t, labels)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: test.Namespace},
		Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{
			PolicySpec:        harness.PolicySpec(v1alpha1.ModeCRR),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	policy.Spec.Priority = 1000
	test.CreateForCluster(policy)
	test.Create(harness.Policy(v1alpha1.ModeImage), harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	requireEndedByImage(test)
}
