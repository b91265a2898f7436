// SPDX-License-Identifier: Apache-2.0

package podinput

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// Observer reads the operator's past attempts by one mechanism.
type Observer interface {
	Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error)
}

// Reader reads the parts of an Input. The operator reads from its caches, and the plugin from the API server or from manifests.
type Reader struct {
	Objects client.Reader
	// Jobs is nil if the caller adds the Job itself.
	Jobs          *JobTemplates
	Observers     []Observer
	NodeKindRules plan.NodeKindRules
}

// AddJob adds the pod's Job to the input if a policy includes injected containers.
func (r *Reader) AddJob(ctx context.Context, in *Input) (err error) {
	if in.includesInjected() {
		in.JobContainers, in.JobUnreadable, err = r.Jobs.Containers(ctx, in.Pod)
	}
	return err
}

// AddState adds the pod's node and the past attempts on the pod to the input.
func (r *Reader) AddState(ctx context.Context, in *Input) error {
	var node *corev1.Node
	if r.NodeKindRules.All == "" {
		var err error
		if node, err = r.node(ctx, in.Pod); err != nil {
			return err
		}
	}
	in.Node, in.Kubelet = r.NodeKindRules.Classify(node), kubelet(node)
	for _, observer := range r.Observers {
		past, err := observer.Observe(ctx, in.Pod)
		switch {
		case errors.Is(err, terminator.ErrInvalidAnnotation):
			in.InvalidAnnotation = err.Error()
		case err != nil:
			return err
		}
		in.Attempts = append(in.Attempts, past...)
	}
	return nil
}

// node returns the pod's node, or nil if the pod has none or the reader does not know it.
func (r *Reader) node(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	switch err := r.Objects.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node of pod: %w", err)
	}
	return node, nil
}

// kubelet returns what the node reports about its kubelet, or the zero value for nil.
func kubelet(node *corev1.Node) plan.Kubelet {
	if node == nil {
		return plan.Kubelet{}
	}
	return plan.Kubelet{Version: node.Status.NodeInfo.KubeletVersion, Features: node.Status.DeclaredFeatures}
}

// NamespaceMetadata returns an empty namespace for reads and watches of metadata alone.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}
