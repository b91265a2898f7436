// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/policyindex"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// withName sets the name label that the API server sets on every namespace.
func withName(namespace *corev1.Namespace) {
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, corev1.LabelMetadataName, namespace.Name)
}

// missingNamespaces are the namespaces of objects that are not in the manifests.
func (m Manifests) missingNamespaces() sets.Set[string] {
	missing, given := sets.New[string](), sets.New[string]()
	for _, manifest := range m.Objects {
		switch object := manifest.Object.(type) {
		case *corev1.Namespace:
			given.Insert(object.Name)
		default:
			missing.Insert(object.GetNamespace())
		}
	}
	for _, manifest := range m.Others {
		missing.Insert(manifest.Raw.GetNamespace())
	}
	return missing.Difference(given).Delete("")
}

// AddNamespaceLabels adds the labels of the pod's namespace.
func (s *Source) AddNamespaceLabels(ctx context.Context, pod *explain.Pod) error {
	namespace := policyindex.NamespaceMetadata()
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: pod.Pod.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	pod.NamespaceLabels = namespace.Labels
	return nil
}

// AddNotSelecting adds the policies of the pod's namespace and of the cluster kind that do not select the pod, without those with
// an invalid selector, and the labels of the namespace.
func (s *Source) AddNotSelecting(ctx context.Context, pod *explain.Pod) error {
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := s.Reader.List(ctx, &namespaced, client.InNamespace(pod.Pod.Namespace)); err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := s.Reader.List(ctx, &cluster); err != nil {
		return fmt.Errorf("list cluster policies: %w", err)
	}
	selecting := sets.New[resolve.PolicyRef]()
	for _, policy := range pod.Policies {
		selecting.Insert(policy.Ref)
	}
	add := func(policy resolve.Policy, invalid error) {
		if invalid == nil && !selecting.Has(policy.Ref) && s.Settings.Watches(policy.Ref.Namespace) {
			pod.NotSelecting = append(pod.NotSelecting, policy)
		}
	}
	for i := range namespaced.Items {
		add(resolve.FromNamespaced(&namespaced.Items[i]))
	}
	for i := range cluster.Items {
		add(resolve.FromCluster(&cluster.Items[i]))
	}
	if !slices.ContainsFunc(pod.NotSelecting, resolve.Policy.SelectsNamespaces) {
		return nil
	}
	return s.AddNamespaceLabels(ctx, pod)
}

// policies returns the policies that select the pod. It adds a note if the result depends on the labels of a namespace that is
// not in the manifests.
func (s *Source) policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error) {
	index, err := policyindex.List(ctx, s.Reader, pod.Namespace)
	if err != nil {
		return nil, err
	}
	selecting, err := index.Policies(ctx, pod)
	if !s.Settings.Watches("") {
		selecting = slices.DeleteFunc(slices.Clone(selecting), func(p resolve.Policy) bool { return !s.Settings.Watches(p.Ref.Namespace) })
	}
	if err != nil || !s.Settings.Watches("") || !s.assumed.Has(pod.Namespace) {
		return selecting, err
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := s.Reader.List(ctx, &cluster); err != nil {
		return nil, fmt.Errorf("list cluster policies: %w", err)
	}
	for i := range cluster.Items {
		policy, err := resolve.FromCluster(&cluster.Items[i])
		if err != nil || !policy.MaySelect(pod) || !selectsByUnknownLabel(cluster.Items[i].Spec.NamespaceSelector) {
			continue
		}
		note := fmt.Sprintf("namespace %s is not in the manifests: it is assumed to have the label %s only; add its manifest, because a cluster policy selects by labels",
			pod.Namespace, corev1.LabelMetadataName)
		if !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
	}
	return selecting, nil
}

// selectsByUnknownLabel reports whether the selector uses a label that the API server does not set.
func selectsByUnknownLabel(selector *metav1.LabelSelector) bool {
	if selector == nil {
		return false
	}
	for label := range selector.MatchLabels {
		if label != corev1.LabelMetadataName {
			return true
		}
	}
	return slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key != corev1.LabelMetadataName })
}
