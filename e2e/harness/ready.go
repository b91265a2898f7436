//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// readyTimeout allows for an operator that was just deployed.
const readyTimeout = 2 * time.Minute

// Ready returns an error if the cluster lacks something that the tests need, or has something that would make them time out. The
// error says what to do. The cluster may otherwise be in use.
func Ready() error {
	cluster, err := Connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for _, require := range []func(context.Context) error{
		cluster.requireNode, cluster.requireKruise, cluster.requireNoForeignPolicy,
	} {
		if err := require(ctx); err != nil {
			return err
		}
	}
	return poll(ctx, func(ctx context.Context) error {
		_, err := cluster.operatorPod(ctx)
		return err
	})
}

func (c *Cluster) requireNode(ctx context.Context) error {
	_, err := c.RealNodes(ctx)
	return err
}

// marksOfNodes are labels of virtual nodes and of nodes without OpenKruise's daemon.
var marksOfNodes = map[string]string{"type": "virtual-kubelet", "eks.amazonaws.com/compute-type": "fargate"}

// RealNodes returns the Ready nodes that are not marked as virtual or without OpenKruise's daemon. It returns an error if there
// is none.
func (c *Cluster) RealNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	var found []corev1.Node
	var others []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		marks := slices.DeleteFunc(slices.Sorted(maps.Keys(marksOfNodes)), func(key string) bool { return node.Labels[key] != marksOfNodes[key] })
		if len(marks) == 0 && isReady(node) {
			found = append(found, *node)
			continue
		}
		others = append(others, fmt.Sprintf("%s (ready: %t, labels %q)", node.Name, isReady(node), marks))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no Ready node runs OpenKruise's daemon: %s (start missing components with `make cluster-up`; "+
			"remove the label of an interrupted test with `kubectl label node NODE type-`)", strings.Join(others, ", "))
	}
	return found, nil
}

// KubeletIsAtLeast reports whether the kubelet of each real node has at least this version, such as 1.35.
func (t *Test) KubeletIsAtLeast(oldest string) bool {
	t.Helper()
	nodes, err := t.RealNodes(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return !slices.ContainsFunc(nodes, func(node corev1.Node) bool {
		return version.MustParseGeneric(node.Status.NodeInfo.KubeletVersion).LessThan(version.MustParseGeneric(oldest))
	})
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

func (c *Cluster) requireKruise(ctx context.Context) error {
	if err := c.Client.List(ctx, KruiseList("ContainerRecreateRequest"), client.Limit(1)); err != nil {
		return fmt.Errorf("list the CRRs (install OpenKruise with `make cluster-up`): %w", err)
	}
	return nil
}

// requireNoForeignPolicy requires that no cluster policy selects every namespace of the tests.
func (c *Cluster) requireNoForeignPolicy(ctx context.Context) error {
	policies := &v1alpha1.ClusterSidecarTerminationPolicyList{}
	if err := c.Client.List(ctx, policies); err != nil {
		return fmt.Errorf("list the cluster policies (deploy the operator with `make cluster-deploy`): %w", err)
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		// No selector means every namespace.
		selector, err := metav1.LabelSelectorAsSelector(ptr.To(ptr.Deref(policy.Spec.NamespaceSelector, metav1.LabelSelector{})))
		if err == nil && selector.Matches(labels.Set{LabelNamespace: "true", corev1.LabelMetadataName: "e2e-"}) {
			return fmt.Errorf("ClusterSidecarTerminationPolicy %s selects the namespaces of the tests: delete it, or exclude namespaces with "+
				"label %s by its namespaceSelector", policy.Name, LabelNamespace)
		}
	}
	return nil
}
