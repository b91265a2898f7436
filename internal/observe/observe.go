// SPDX-License-Identifier: Apache-2.0

// Package observe reads a pod's namespace, node and the past attempts on the pod, and the admission policies of an installation. The operator
// reads what concerns pods from its caches, and the command line from the API server or from manifests. The package writes nothing and decides
// nothing.
package observe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// Node returns the pod's node, or nil if the pod has none or the reader does not know it.
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

// NamespaceMetadata returns an empty namespace for reads and watches of metadata alone.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

// Kubelet returns what the node reports about its kubelet, or the zero value for nil.
func Kubelet(node *corev1.Node) plan.Kubelet {
	if node == nil {
		return plan.Kubelet{}
	}
	return plan.Kubelet{Version: node.Status.NodeInfo.KubeletVersion, Features: node.Status.DeclaredFeatures}
}

// Observer reads the operator's past attempts by one mechanism.
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

// AdmissionPolicy returns the state of an admission policy with its binding, and since when both exist. A kind that the cluster does not
// serve is missing. With an error the state is Unknown.
func AdmissionPolicy(
	ctx context.Context, reader client.Reader, policy shipped.AdmissionPolicy, in shipped.Installation,
) (status shipped.Status, created time.Time, err error) {
	objects := policy.Objects(in)
	for i, object := range objects {
		err := reader.Get(ctx, client.ObjectKeyFromObject(object), object)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			objects[i] = nil
		case err != nil:
			return shipped.Status{State: shipped.Unknown}, created, fmt.Errorf("get admission policy %s: %w", object.GetName(), err)
		case object.GetCreationTimestamp().After(created):
			created = object.GetCreationTimestamp().Time
		}
	}
	return policy.Compare(in, objects), created, nil
}
