//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// bothVariables declare mode CRR on real nodes and mode Image on virtual nodes.
var bothVariables = []string{v1alpha1.EnvTerminate, "true", v1alpha1.EnvTerminateWithImage, harness.QuickExitImage}

func TestBothVariablesOnRealNode(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		test.Create(jobWithEnv(restartPolicy, append([]string{v1alpha1.EnvIgnoreExitCode, "false"}, bothVariables...)...))
		requireEndedByCRR(test, "job")
	})
}

// Only a label makes the node virtual: it keeps its kubelet and OpenKruise's daemon.
func TestVirtualNode(t *testing.T) {
	harness.Exclusive(t)
	node := labelRealNode(t)
	t.Run("both variables", func(t *testing.T) {
		test := harness.New(t)
		test.Create(onNode(jobWithEnv(corev1.RestartPolicyNever, bothVariables...), node))
		requireEndedByImage(test)
	})
	t.Run("Auto policy", func(t *testing.T) {
		test := harness.New(t)
		policy := harness.Policy(v1alpha1.ModeAuto)
		policy.Spec.Image = harness.QuickExitImage
		job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
		test.Create(policy, onNode(job, node))
		requireEndedByImage(test)
	})
}

// realNode returns a Ready node with a kubelet and OpenKruise's daemon.
func realNode(t *testing.T, cluster *harness.Cluster) *corev1.Node {
	t.Helper()
	nodes, err := cluster.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &nodes[0]
}

// labelRealNode labels a real node as virtual until the test ends, and returns its hostname.
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
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"type":`+value+`}}}`))
	if err := cluster.Client.Patch(ctx, &corev1.Node{ObjectMeta: node.ObjectMeta}, patch); err != nil {
		t.Errorf("Label the node %s: %v", node.Name, err)
	}
}
