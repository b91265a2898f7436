// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// withName sets the label that the API server gives to every namespace.
func withName(namespace *corev1.Namespace) {
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, corev1.LabelMetadataName, namespace.Name)
}

// missingNamespaces are those of the objects that are not among the objects themselves.
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
	return missing.Difference(given).Delete("")
}

// policies returns the policies that select the pod. Of manifests it notes where that depends on the labels of a namespace
// that they do not have.
func (s *Source) policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error) {
	selecting, err := observe.Policies(ctx, s.Reader, pod)
	if err != nil || !s.assumed.Has(pod.Namespace) {
		return selecting, err
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := s.Reader.List(ctx, &cluster); err != nil {
		return nil, fmt.Errorf("list cluster policies: %w", err)
	}
	for i := range cluster.Items {
		policy, err := resolve.FromCluster(&cluster.Items[i])
		if err != nil || !policy.MaySelect(pod) || !asksForLabels(cluster.Items[i].Spec.NamespaceSelector) {
			continue
		}
		note := fmt.Sprintf("namespace %s is not in the manifests: it is taken to have no label but %s; give its manifest as well, for cluster policies select by labels",
			pod.Namespace, corev1.LabelMetadataName)
		if !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
	}
	return selecting, nil
}

// asksForLabels reports whether the selector depends on a label that the API server does not set.
func asksForLabels(selector *metav1.LabelSelector) bool {
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
