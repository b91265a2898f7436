// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// checkPolicies finds policies that are not ready or degraded. It sets policies for the checks that follow.
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

// checkInjected checks that the operator may read the Jobs whose templates policies with includeInjected need.
func (c *checker) checkInjected(ctx context.Context) error {
	namespaces := sets.New[string]()
	for _, policy := range c.policies {
		switch {
		case !policy.Spec.IncludeInjected:
		case c.readsCluster():
			namespaces.Insert(corev1.NamespaceAll)
		default:
			namespaces.Insert(policy.Ref.Namespace)
		}
	}
	hint := "install the operator with component include-injected"
	switch {
	case !c.readsCluster():
		hint = "grant it by a Role in the namespace"
	case c.release() != "":
		hint = c.upgrade("includeInjected=true")
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{batchv1.GroupName}, Resources: []string{"jobs"}, Verbs: []string{"get"}}}
	for _, namespace := range sets.List(namespaces) {
		_, err := c.failDenied(ctx, permissionsOf(rules, namespace, "includeInjected of policies"), c.ofOperator, hint, "ServiceAccount "+c.account())
		if err != nil && !apierrors.IsForbidden(err) { // checkPermissions has said what the user may not do
			return err
		}
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
