//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// readyTimeout allows for an operator that was just deployed.
const readyTimeout = 4 * time.Minute

// Ready waits until the cluster has what all tests need. The error says what to do.
func Ready() error {
	cluster, err := Connect()
	if err != nil {
		return err
	}
	return progress.Poll(context.Background(), pollInterval, readyTimeout, func(ctx context.Context) error {
		if _, err := cluster.RealNodes(ctx); err != nil {
			return err
		}
		if err := cluster.Client.List(ctx, KruiseList("ContainerRecreateRequest"), client.Limit(1)); err != nil {
			return fmt.Errorf("list the CRRs (install OpenKruise with `make cluster-up`): %w", err)
		}
		_, err := cluster.operatorPod(ctx)
		return err
	})
}

// RealNodes returns the Ready nodes with OpenKruise's daemon. It returns an error if there is none.
func (c *Cluster) RealNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	selector := metav1.ListOptions{LabelSelector: "type!=virtual-kubelet,eks.amazonaws.com/compute-type!=fargate"}
	if err := c.Client.List(ctx, nodes, &client.ListOptions{Raw: &selector}); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	ready := slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool {
		return !slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	})
	if len(ready) == 0 {
		return nil, errors.New("no Ready node runs OpenKruise's daemon (start missing components with `make cluster-up`)")
	}
	return ready, nil
}

// ServesOutcomePolicy reports whether the API server has the kind of the admission policy that decides outcomes, so that the cluster has it.
func (t *Test) ServesOutcomePolicy() bool {
	t.Helper()
	return t.serves(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}, "v1")
}

// KubeletIsAtLeast reports whether the kubelet of each real node has at least this version, such as 1.35.
func KubeletIsAtLeast(t *testing.T, oldest string) bool {
	t.Helper()
	cluster, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := cluster.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(nodes, func(node corev1.Node) bool {
		return version.MustParseGeneric(node.Status.NodeInfo.KubeletVersion).LessThan(version.MustParseGeneric(oldest))
	})
}
