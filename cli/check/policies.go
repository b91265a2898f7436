// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// checkPolicies finds policies that are not ready or degraded. It sets policies for the check that follows.
func (c *checker) checkPolicies(ctx context.Context) error {
	policies, err := c.listPolicies(ctx)
	switch {
	case c.unreadable(err, "policies of all namespaces"):
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		c.warn("install the CRDs of the operator", "policies are not served")
		return nil
	case err != nil:
		return err
	}
	c.policies = policies
	affected := 0
	for _, policy := range policies {
		ready := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
		degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded)
		title, argument := named(policy.Ref)
		hint := "run: " + settings.PluginName + " explain " + argument
		affected++
		switch {
		case ready == nil || policy.Status.ObservedGeneration < policy.Object.GetGeneration():
			c.warn("check that the operator is running: it writes the status within seconds", "%s has no current status", title)
		case ready.Status != metav1.ConditionTrue:
			c.warn(hint, "%s is not ready (%s): %s", title, ready.Reason, ready.Message)
		case degraded != nil:
			c.warn(hint, "%s is degraded (%s): %s", title, degraded.Reason, degraded.Message)
		default:
			affected--
		}
	}
	switch total := len(policies); {
	case total == 0:
		c.ok("no policies found; only environment variables declare sidecars")
	case affected == 0:
		c.ok("%d of %d policies are ready and not degraded", total, total)
	}
	return nil
}

// listPolicies lists the policies that the operator reads.
func (c *checker) listPolicies(ctx context.Context) ([]explain.Policy, error) {
	namespaces := []string{corev1.NamespaceAll}
	if !c.readsCluster() {
		namespaces = c.settings.WatchNamespaces
	}
	return source.ListPolicies(ctx, c.Client, namespaces, c.readsCluster())
}

// named returns the policy's title, and its name in the arguments of explain.
func named(policy resolve.PolicyRef) (title, argument string) {
	if policy.Namespace == "" {
		return "clusterpolicy " + policy.Name, "clusterpolicy/" + policy.Name
	}
	return "policy " + policy.Namespace + "/" + policy.Name, "policy/" + policy.Name + " -n " + policy.Namespace
}
