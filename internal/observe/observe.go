// SPDX-License-Identifier: Apache-2.0

// Package observe reads what decisions depend on: the policies that select a pod, its node and past attempts on it. The
// operator reads them from its caches, and the command line from the API server or from manifests; what is made of them
// is the same. The package writes nothing and decides nothing.
package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Policies returns the policies that select the pod. A policy whose selector cannot be parsed selects nothing; its
// status says so. The result may share memory with the reader's cache and must not be changed.
func Policies(ctx context.Context, reader client.Reader, pod *corev1.Pod) ([]resolve.Policy, error) {
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := reader.List(ctx, &namespaced, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	var selecting []resolve.Policy
	for i := range namespaced.Items {
		if policy, err := resolve.FromNamespaced(&namespaced.Items[i]); err == nil && policy.Selects(pod, nil) {
			selecting = append(selecting, policy)
		}
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := reader.List(ctx, &cluster, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cluster policies: %w", err)
	}
	if len(cluster.Items) == 0 {
		return selecting, nil
	}
	namespace := NamespaceMetadata()
	if err := reader.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get namespace of pod: %w", err)
	}
	for i := range cluster.Items {
		if policy, err := resolve.FromCluster(&cluster.Items[i]); err == nil && policy.Selects(pod, namespace.Labels) {
			selecting = append(selecting, policy)
		}
	}
	return selecting, nil
}

// Node returns the pod's node, or nil while it has none or the node is not known.
func Node(ctx context.Context, reader client.Reader, pod *corev1.Pod) (*corev1.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	switch err := reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node of pod: %w", err)
	}
	return node, nil
}

// Observer knows the operator's past attempts by one mechanism.
type Observer interface {
	Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error)
}

// Attempts returns the operator's past attempts on the pod by all mechanisms.
func Attempts[O Observer](ctx context.Context, observers []O, pod *corev1.Pod) ([]plan.Attempt, error) {
	var attempts []plan.Attempt
	for _, observer := range observers {
		past, err := observer.Observe(ctx, pod)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, past...)
	}
	return attempts, nil
}

// NamespaceMetadata is a namespace of which only the metadata is read.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}
