//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// ownLabels returns unique labels, so that a policy of an interrupted run does not select the namespace.
func ownLabels() map[string]string {
	return map[string]string{"e2e.sidecartermination.dev/team": rand.String(10)}
}

// clusterPolicy returns a policy for the namespaces with the labels. It has the name of the test's namespace.
func clusterPolicy(test *harness.Test, mode v1alpha1.Mode, labels map[string]string) *v1alpha1.ClusterSidecarTerminationPolicy {
	return &v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: test.Namespace},
		Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{
			PolicySpec: harness.PolicySpec(mode), NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
}

func TestClusterPolicySelectsNamespaces(t *testing.T) {
	harness.Shared(t)
	labels := ownLabels()
	selected := harness.NewWithLabels(t, labels)
	other := harness.New(t)
	policy := clusterPolicy(selected, v1alpha1.ModeAuto, labels)
	selected.CreateForCluster(policy)

	other.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
	other.WaitForMain("job")
	selected.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	record := selected.RequireCompleted("job")
	requireUntouched(other, "job")

	selected.EventuallyGet(policy, "the pod to be counted as terminated", harness.StatusTimeout, func() error {
		status := policy.Status
		if status.TerminatedPods != 1 || len(status.Recent) != 1 || status.Recent[0].Pod != record.Pod.Name || status.Recent[0].Namespace != selected.Namespace {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
}

func TestNamespacedPolicyTakesPrecedence(t *testing.T) {
	harness.Shared(t)
	labels := ownLabels()
	test := harness.NewWithLabels(t, labels)
	policy := clusterPolicy(test, v1alpha1.ModeCRR, labels)
	policy.Spec.Priority = 1000
	test.CreateForCluster(policy)
	test.Create(harness.Policy(v1alpha1.ModeImage), harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	requireEndedByImage(test)
}
