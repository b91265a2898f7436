//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// bothVariables declare mode CRR for real nodes and mode Image for virtual ones.
var bothVariables = []string{v1alpha1.EnvTerminate, "true", v1alpha1.EnvTerminateWithImage, harness.QuickExitImage}

func TestBothVariablesOnRealNode(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(jobWithEnv(restartPolicy, append([]string{v1alpha1.EnvIgnoreExitCode, "false"}, bothVariables...)...))
			requireEndedByRequest(test, "job")
		})
	}
}

// The node keeps its kubelet and Kruise's daemon, and only its label says that it is virtual. That the operator goes by
// the label shows in what it does.
func TestVirtualNode(t *testing.T) {
	harness.Exclusive(t)
	node := labelRealNode(t)
	t.Run("both variables", func(t *testing.T) {
		test := harness.New(t)
		test.Create(onNode(jobWithEnv(corev1.RestartPolicyNever, bothVariables...), node))
		requireEndedByImage(test)
	})
	t.Run("policy with mode Auto", func(t *testing.T) {
		test := harness.New(t)
		policy := harness.Policy(v1alpha1.ModeAuto)
		policy.Spec.Image = harness.QuickExitImage
		job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
		test.Create(policy, onNode(job, node))
		requireEndedByImage(test)
	})
}

// realNode returns a Ready node that has a kubelet and OpenKruise's daemon. Nodes of others, which no kubelet serves, may be
// in the cluster as well.
func realNode(t *testing.T, cluster *harness.Cluster) *corev1.Node {
	t.Helper()
	nodes, err := cluster.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &nodes[0]
}

// labelRealNode labels one node that has a kubelet and Kruise's daemon as virtual until the test ends, and returns its
// hostname.
func labelRealNode(t *testing.T) string {
	t.Helper()
	cluster, err := harness.Connect()
	if err != nil {
		t.Fatal(err)
	}
	node := realNode(t, cluster)
	t.Cleanup(func() { patchLabel(context.Background(), t, cluster, node, `null`) })
	patchLabel(t.Context(), t, cluster, node, `"virtual-kubelet"`)
	return node.Labels[corev1.LabelHostname]
}

func patchLabel(ctx context.Context, t *testing.T, cluster *harness.Cluster, node *corev1.Node, value string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"type":`+value+`}}}`))
	if err := cluster.Client.Patch(ctx, &corev1.Node{ObjectMeta: node.ObjectMeta}, patch); err != nil {
		t.Errorf("Label the node %s: %v", node.Name, err)
	}
}
