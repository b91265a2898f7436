// SPDX-License-Identifier: Apache-2.0

package source

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// PolicyOf converts a policy of either kind, and returns false for other objects.
func PolicyOf(object client.Object) (explain.Policy, bool) {
	switch policy := object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		parsed, invalid := resolve.FromNamespaced(policy)
		return explain.Policy{
			Ref:  resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: policy.Namespace, Name: policy.Name},
			Spec: &policy.Spec.PolicySpec, Conditions: policy.Status.Conditions, Parsed: parsed, Invalid: invalid,
		}, true
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		parsed, invalid := resolve.FromCluster(policy)
		return explain.Policy{
			Ref:  resolve.PolicyRef{Kind: resolve.KindCluster, Name: policy.Name},
			Spec: &policy.Spec.PolicySpec, Conditions: policy.Status.Conditions, Parsed: parsed, Invalid: invalid,
		}, true
	}
	return explain.Policy{}, false
}
