// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// namespaces checks an operator for single namespaces: whether they exist, and what the operator does without. It has no result for an
// operator for the whole cluster.
func (c *checker) namespaces(ctx context.Context) error {
	c.name = "Namespaces"
	if !c.settings.Capabilities.NamespacesOnly {
		return nil
	}
	var missing []string
	for _, name := range c.settings.WatchNamespaces {
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil && !apierrors.IsForbidden(err):
			return fmt.Errorf("get namespace: %w", err)
		}
	}
	if len(missing) > 0 {
		c.warn("create them with the operator's roles, or correct --watch-namespaces", "the operator watches namespaces that do not exist: %s", firstOf(missing))
	}
	c.ok("the operator watches only %s; it uses neither cluster policies nor OpenKruise", strings.Join(c.settings.WatchNamespaces, ", "))
	if c.settings.NodeKindRules.All == plan.NodeNotRead {
		c.warn("if all nodes of their pods have a kubelet: "+c.installer.set("--node-kind=Real"),
			"the operator may not read nodes and does not know their kind, so it uses only mode Image")
	}
	return c.unreadClusterPolicies(ctx)
}

// unreadClusterPolicies finds cluster policies, which have no effect on the namespaces.
func (c *checker) unreadClusterPolicies(ctx context.Context) error {
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	err := c.client.List(ctx, &cluster)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("list cluster policies: %w", err)
	}
	var names []string
	for i := range cluster.Items {
		names = append(names, cluster.Items[i].Name)
	}
	if len(names) > 0 {
		c.warn("write a policy in each namespace, or install the operator for the whole cluster",
			"the operator does not read cluster policies, because it runs with --watch-namespaces: %s", firstOf(names))
	}
	return nil
}
