// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/settings"
)

// policy is a policy of either kind that the operator reads.
type policy struct {
	title, explain string // explain is the command that says more
	object         metav1.Object
	spec           *v1alpha1.PolicySpec
	status         *v1alpha1.PolicyStatus
}

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
		return fmt.Errorf("list policies: %w", err)
	}
	c.policies = policies
	affected := 0
	for _, policy := range policies {
		ready := meta.FindStatusCondition(policy.status.Conditions, v1alpha1.ConditionReady)
		degraded := meta.FindStatusCondition(policy.status.Conditions, v1alpha1.ConditionDegraded)
		affected++
		switch {
		case ready == nil || policy.status.ObservedGeneration < policy.object.GetGeneration():
			c.warn("check that the operator is running: it writes the status within seconds", "%s has no current status", policy.title)
		case ready.Status != metav1.ConditionTrue:
			c.warn(policy.explain, "%s is not ready (%s): %s", policy.title, ready.Reason, ready.Message)
		case degraded != nil:
			c.warn(policy.explain, "%s is degraded (%s): %s", policy.title, degraded.Reason, degraded.Message)
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
func (c *checker) listPolicies(ctx context.Context) ([]policy, error) {
	namespaces := []string{corev1.NamespaceAll}
	if !c.readsCluster() {
		namespaces = c.settings.WatchNamespaces
	}
	var all []policy
	for _, namespace := range namespaces {
		var namespaced v1alpha1.SidecarTerminationPolicyList
		if err := c.Client.List(ctx, &namespaced, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for i := range namespaced.Items {
			p := &namespaced.Items[i]
			all = append(all, policy{
				"policy " + p.Namespace + "/" + p.Name, explainHint("policy/" + p.Name + " -n " + p.Namespace), p, &p.Spec.PolicySpec, &p.Status,
			})
		}
	}
	if !c.readsCluster() {
		return all, nil
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := c.Client.List(ctx, &cluster); err != nil {
		return nil, err
	}
	for i := range cluster.Items {
		p := &cluster.Items[i]
		all = append(all, policy{"clusterpolicy " + p.Name, explainHint("clusterpolicy/" + p.Name), p, &p.Spec.PolicySpec, &p.Status})
	}
	return all, nil
}

func explainHint(arguments string) string {
	return "run: " + settings.PluginName + " explain " + arguments
}
