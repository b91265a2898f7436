// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// policies finds policies that are not ready or degraded.
func (c *checker) policies(ctx context.Context) error {
	c.name = "PolicyConditions"
	total, affected := 0, 0
	inspect := func(kind, namespace, name string, generation int64, status v1alpha1.PolicyStatus) {
		total++
		title := kind + "/" + name
		hint := "run: " + c.program + " explain " + title
		if namespace != "" {
			title, hint = title+" in namespace "+namespace, hint+" -n "+namespace
		}
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
		switch {
		case ready == nil || status.ObservedGeneration < generation:
			affected++
			c.warn("check that the operator is running: it writes the status within seconds", "%s has no current status", title)
		case ready.Status != metav1.ConditionTrue:
			affected++
			c.warn(hint, "%s is not ready (%s): %s", title, ready.Reason, ready.Message)
		case degraded != nil:
			affected++
			c.warn(hint, "%s is degraded (%s): %s", title, degraded.Reason, degraded.Message)
		}
	}
	namespaced, cluster, err := c.listPolicies(ctx)
	if err != nil {
		return c.policiesUnread(err)
	}
	for i := range namespaced {
		p := &namespaced[i]
		inspect("policy", p.Namespace, p.Name, p.Generation, p.Status)
	}
	for i := range cluster {
		p := &cluster[i]
		inspect("clusterpolicy", "", p.Name, p.Generation, p.Status)
	}
	switch {
	case total == 0:
		c.ok("no policies found; only environment variables declare sidecars")
	case affected == 0:
		c.ok("%d of %d policies are ready and not degraded", total, total)
	}
	return nil
}

// policiesUnread adds a result for the error, or returns an unexpected error.
func (c *checker) policiesUnread(err error) error {
	switch {
	case c.unreadable(err, "policies of all namespaces"):
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		c.warn("install the CRDs of the operator", "policies are not served")
		return nil
	}
	return fmt.Errorf("list policies: %w", err)
}

// listPolicies lists the policies of both kinds that the operator reads.
func (c *checker) listPolicies(ctx context.Context) ([]v1alpha1.SidecarTerminationPolicy, []v1alpha1.ClusterSidecarTerminationPolicy, error) {
	if c.settings.Capabilities.NamespacesOnly {
		var all []v1alpha1.SidecarTerminationPolicy
		for _, namespace := range c.settings.WatchNamespaces {
			var namespaced v1alpha1.SidecarTerminationPolicyList
			if err := c.client.List(ctx, &namespaced, client.InNamespace(namespace)); err != nil {
				return nil, nil, err
			}
			all = append(all, namespaced.Items...)
		}
		return all, nil, nil
	}
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := c.client.List(ctx, &namespaced); err != nil {
		return nil, nil, err
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := c.client.List(ctx, &cluster); err != nil {
		return nil, nil, err
	}
	return namespaced.Items, cluster.Items, nil
}
