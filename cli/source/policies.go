// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// PolicyOf converts a policy of either kind, and returns false for other objects.
func PolicyOf(object client.Object) (explain.Policy, bool) {
	switch policy := object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		parsed, invalid := resolve.FromNamespaced(policy)
		parsed.Ref = resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: policy.Namespace, Name: policy.Name}
		parsed.Spec = &policy.Spec.PolicySpec
		return explain.Policy{Policy: parsed, Conditions: policy.Status.Conditions, Invalid: invalid}, true
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		parsed, invalid := resolve.FromCluster(policy)
		parsed.Ref, parsed.Spec = resolve.PolicyRef{Kind: resolve.KindCluster, Name: policy.Name}, &policy.Spec.PolicySpec
		return explain.Policy{Policy: parsed, Conditions: policy.Status.Conditions, Invalid: invalid}, true
	}
	return explain.Policy{}, false
}

// addPolicies adds the policies of the pod's namespace and of the cluster kind, without those with an invalid selector, and the labels
// of the namespace if they matter. From manifests it predicts what webhooks add to the pods of a template. In a cluster the pods show it.
func (s *Source) addPolicies(ctx context.Context, pod *explain.Pod) error {
	all, err := s.policies(ctx, pod.Pod)
	if err != nil {
		return err
	}
	namespace := podinput.NamespaceMetadata()
	predicts := s.Cluster.Offline && pod.Template
	needed := predicts || slices.ContainsFunc(all, resolve.Policy.SelectsNamespaces)
	err = s.Reader.Get(ctx, client.ObjectKey{Name: pod.Pod.Namespace}, namespace)
	// Without policies that select namespaces, their labels say only whether somebody has opted out.
	if client.IgnoreNotFound(err) != nil && (needed || !apierrors.IsForbidden(err)) {
		return fmt.Errorf("get namespace: %w", err)
	}
	pod.NamespaceLabels = namespace.Labels
	if predicts {
		pod.Injected = sidecars.Predict(pod.Pod, namespace)
	}
	for _, policy := range all {
		if policy.Selects(pod.Pod, namespace.Labels) {
			pod.Policies = append(pod.Policies, policy)
		} else {
			pod.NotSelecting = append(pod.NotSelecting, policy)
		}
	}
	return nil
}

// policies returns the valid policies that the operator reads for pods of the namespace: namespaced ones, then those of the cluster
// kind, each sorted by name. It adds a note if the result depends on the labels of a namespace that is not in the manifests.
func (s *Source) policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error) {
	byName := func(a, b resolve.Policy) int { return strings.Compare(a.Ref.Name, b.Ref.Name) }
	var namespaced, cluster []resolve.Policy
	if s.Settings.Watches(pod.Namespace) {
		var list v1alpha1.SidecarTerminationPolicyList
		if err := s.Reader.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("list policies: %w", err)
		}
		for i := range list.Items {
			if policy, err := resolve.FromNamespaced(&list.Items[i]); err == nil {
				namespaced = append(namespaced, policy)
			}
		}
	}
	if s.Settings.Watches("") {
		var list v1alpha1.ClusterSidecarTerminationPolicyList
		if err := s.Reader.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list cluster policies: %w", err)
		}
		for i := range list.Items {
			policy, err := resolve.FromCluster(&list.Items[i])
			if err != nil {
				continue
			}
			cluster = append(cluster, policy)
			if s.assumed.Has(pod.Namespace) && policy.MaySelect(pod) && selectsByUnknownLabel(list.Items[i].Spec.NamespaceSelector) {
				s.note("namespace %s is not in the manifests: it is assumed to have the label %s only; add its manifest, because a cluster policy selects by labels",
					pod.Namespace, corev1.LabelMetadataName)
			}
		}
	}
	slices.SortFunc(namespaced, byName)
	slices.SortFunc(cluster, byName)
	return slices.Concat(namespaced, cluster), nil
}

// selectsByUnknownLabel reports whether the selector, which is valid, uses a label that the API server does not set.
func selectsByUnknownLabel(selector *metav1.LabelSelector) bool {
	parsed, _ := metav1.LabelSelectorAsSelector(selector)
	requirements, _ := parsed.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}
