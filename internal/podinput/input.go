// SPDX-License-Identifier: Apache-2.0

// Package podinput reads what decisions about a pod depend on, and hands it to internal/resolve and internal/plan. It is the one way from a
// pod to a decision: the operator uses it for pods and for the status of policies, and the plugin for its reports and for finish. The package
// writes nothing and decides nothing.
package podinput

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// Input is what decisions about a pod depend on, besides the operator's settings and the time.
type Input struct {
	Pod *corev1.Pod
	// NamespaceLabels are the labels of the pod's namespace, and Policies the policies that select the pod.
	NamespaceLabels map[string]string
	Policies        []resolve.Policy
	// JobContainers are the regular containers of the pod template of the pod's Job. It is empty without a Job.
	JobContainers []string
	// JobUnreadable is true if a policy includes injected containers, and the reader lacks permission to read the pod's Job.
	JobUnreadable bool
	// Node is the kind of the pod's node, and Kubelet what it reports about its kubelet.
	Node    plan.NodeKind
	Kubelet plan.Kubelet
	// Attempts are the past attempts on the pod. InvalidAnnotation is why the annotations that record them cannot be read, or empty.
	Attempts          []plan.Attempt
	InvalidAnnotation string
	// PhaseSince is when the pod's phase became terminal, or zero if nobody knows.
	PhaseSince time.Time
}

// Options adds to the operator's settings what is known about the pod.
func (in Input) Options(operator resolve.Options) resolve.Options {
	operator.NamespaceLabels = in.NamespaceLabels
	operator.Injected = nil
	if in.includesInjected() {
		operator.Injected = resolve.Injected(in.Pod, in.JobContainers)
	}
	return operator
}

// Resolve resolves the declarations for the pod. A pod that the operator ignores whatever they say gets a warning instead.
func (in Input) Resolve(operator resolve.Options) resolve.Resolution {
	if reason, message := plan.Unprocessable(in.Pod); reason != "" {
		return resolve.Resolution{Warnings: []resolve.Warning{{Reason: reason, Message: message}}}
	}
	return resolve.Resolve(in.Pod, in.Policies, in.Options(operator))
}

// Snapshot returns the input of plan.Next for one view of the pod's containers. The caller adds what it remembers about the pod.
func (in Input) Snapshot(view resolve.View, capabilities plan.Capabilities) plan.Snapshot {
	return plan.Snapshot{
		Pod: in.Pod, View: view, Node: in.Node, Kubelet: in.Kubelet, Capabilities: capabilities,
		Attempts: in.Attempts, InvalidAnnotation: in.InvalidAnnotation, PhaseSince: in.PhaseSince, JobUnreadable: in.JobUnreadable,
	}
}

func (in Input) includesInjected() bool {
	return slices.ContainsFunc(in.Policies, func(p resolve.Policy) bool { return p.Spec.IncludeInjected })
}

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
	node, err := r.node(ctx, in.Pod)
	if err != nil {
		return err
	}
	if in.Node = r.NodeKindRules.Classify(node); node != nil {
		in.Kubelet = plan.Kubelet{Version: node.Status.NodeInfo.KubeletVersion, Features: node.Status.DeclaredFeatures}
	}
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

// node returns the pod's node, or nil if the pod has none, or the reader does not know it or need not read it.
func (r *Reader) node(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	if pod.Spec.NodeName == "" || r.NodeKindRules.All != "" {
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

// NamespaceMetadata returns an empty namespace for reads and watches of metadata alone.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}
