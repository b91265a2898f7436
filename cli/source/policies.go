// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// PolicyOf converts a policy of either kind, and returns false for other objects.
func PolicyOf(object client.Object) (explain.Policy, bool) {
	policy, ok := object.(v1alpha1.Policy)
	if !ok {
		return explain.Policy{}, false
	}
	parsed, invalid := resolve.Parse(policy)
	_, status := policy.Parts()
	return explain.Policy{Policy: parsed, Object: policy, Status: *status, Invalid: invalid}, true
}

// WithPolicies adds the policies of the pod's namespace and of the cluster kind, without those with an invalid selector, and the labels
// of the namespace if they matter. From manifests it predicts what webhooks add to the pods of a template. In a cluster the pods show it.
func (s *Source) WithPolicies(ctx context.Context, pod explain.Pod) (explain.Pod, error) {
	all, err := s.policies(ctx, pod.Pod)
	if err != nil {
		return pod, err
	}
	namespace := podinput.NamespaceMetadata()
	predicts := s.Cluster.Offline && pod.Template
	needed := predicts || slices.ContainsFunc(all, explain.Policy.SelectsNamespaces)
	err = s.Reader.Get(ctx, client.ObjectKey{Name: pod.Pod.Namespace}, namespace)
	// Without policies that select namespaces, their labels say only whether somebody has opted out.
	if client.IgnoreNotFound(err) != nil && (needed || !apierrors.IsForbidden(err)) {
		return pod, fmt.Errorf("get namespace: %w", err)
	}
	pod.NamespaceLabels = namespace.Labels
	if predicts {
		pod.Injected = sidecars.Predict(pod.Pod, namespace)
	}
	for _, policy := range all {
		if !policy.Selects(pod.Pod, namespace.Labels) {
			pod.NotSelecting = append(pod.NotSelecting, policy.Policy)
			continue
		}
		pod.Policies = append(pod.Policies, policy.Policy)
		degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded)
		if policy.Spec.IncludeInjected && degraded != nil && degraded.Reason == string(v1alpha1.ReasonJobsForbidden) {
			pod.JobsForbidden = true
		}
	}
	return pod, nil
}

// ListPolicies lists the policies of the namespaces and, if asked for, those of the cluster kind, each sorted by name.
func ListPolicies(ctx context.Context, reader client.Reader, namespaces []string, cluster bool) ([]explain.Policy, error) {
	var all []explain.Policy
	read := func(list client.ObjectList, options ...client.ListOption) error {
		if err := reader.List(ctx, list, options...); err != nil {
			return fmt.Errorf("list policies: %w", err)
		}
		return meta.EachListItem(list, func(object runtime.Object) error {
			policy, _ := PolicyOf(object.(client.Object))
			all = append(all, policy)
			return nil
		})
	}
	for _, namespace := range namespaces {
		if err := read(&v1alpha1.SidecarTerminationPolicyList{}, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	if cluster {
		if err := read(&v1alpha1.ClusterSidecarTerminationPolicyList{}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b explain.Policy) int {
		return cmp.Or(-cmp.Compare(a.Ref.Kind, b.Ref.Kind), cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	return all, nil
}

// policies returns the valid policies that the operator reads for pods of the namespace: namespaced ones, then those of the cluster
// kind, each sorted by name. It adds a note if the result depends on the labels of a namespace that is not in the manifests.
func (s *Source) policies(ctx context.Context, pod *corev1.Pod) ([]explain.Policy, error) {
	var namespaces []string
	if s.Settings.Watches(pod.Namespace) {
		namespaces = []string{pod.Namespace}
	}
	all, err := ListPolicies(ctx, s.Reader, namespaces, s.Settings.Watches(""))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p explain.Policy) bool { return p.Invalid != nil })
	for _, policy := range all {
		if s.assumed.Has(pod.Namespace) && policy.MaySelect(pod) && selectsByUnknownLabel(policy.Object) {
			s.note("namespace %s is not in the manifests: it is assumed to have the label %s only; add its manifest, because a cluster policy selects by labels",
				pod.Namespace, corev1.LabelMetadataName)
		}
	}
	return all, nil
}

// selectsByUnknownLabel reports whether the policy, which is valid, selects namespaces by a label that the API server does not set.
func selectsByUnknownLabel(policy metav1.Object) bool {
	cluster, ok := policy.(*v1alpha1.ClusterSidecarTerminationPolicy)
	if !ok {
		return false
	}
	parsed, _ := metav1.LabelSelectorAsSelector(cluster.Spec.NamespaceSelector)
	requirements, _ := parsed.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}
