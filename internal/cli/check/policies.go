// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// policies says which policies are not in force or degraded, and why.
func (c *checker) policies(ctx context.Context) error {
	total, unwell := 0, 0
	see := func(kind, namespace, name string, generation int64, status v1alpha1.PolicyStatus) {
		total++
		title := kind + "/" + name
		hint := "see: " + c.program + " explain " + title
		if namespace != "" {
			title, hint = title+" in namespace "+namespace, hint+" -n "+namespace
		}
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
		switch {
		case ready == nil || status.ObservedGeneration < generation:
			unwell++
			c.warn("the operator writes it within seconds if it runs", "%s has no current status", title)
		case ready.Status != metav1.ConditionTrue:
			unwell++
			c.warn(hint, "%s is not ready (%s): %s", title, ready.Reason, ready.Message)
		case degraded != nil:
			unwell++
			c.warn(hint, "%s is degraded (%s): %s", title, degraded.Reason, degraded.Message)
		}
	}
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := c.client.List(ctx, &namespaced); err != nil {
		return c.policiesUnread(err)
	}
	for i := range namespaced.Items {
		p := &namespaced.Items[i]
		see("policy", p.Namespace, p.Name, p.Generation, p.Status)
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := c.client.List(ctx, &cluster); err != nil {
		return c.policiesUnread(err)
	}
	for i := range cluster.Items {
		p := &cluster.Items[i]
		see("clusterpolicy", "", p.Name, p.Generation, p.Status)
	}
	switch {
	case total == 0:
		c.ok("there is no policy yet; only environment variables count")
	case unwell == 0:
		c.ok("%d of %d policies are ready, and none is degraded", total, total)
	}
	return nil
}

// policiesUnread makes a line of the error, or passes on one that means that it was not possible to look.
func (c *checker) policiesUnread(err error) error {
	switch {
	case c.unreadable(err, "policies of all namespaces"):
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		c.warn(installHint, "policies are not served")
		return nil
	}
	return fmt.Errorf("list policies: %w", err)
}
