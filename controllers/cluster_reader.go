// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// clusterReader reads what decisions depend on. It writes nothing.
type clusterReader struct {
	cache       client.Reader // the manager's cache
	live        client.Reader // the API server, without a cache
	pods        podStore
	policies    policyLister
	terminators []terminator.Terminator
	crrServed   func() bool
	templates   *jobTemplates
	options     Options
}

// policyLister finds the policies that select a pod of a namespace with the labels. A policy whose selector cannot be parsed selects
// nothing. The result must not be changed.
type policyLister interface {
	Policies(pod *corev1.Pod, namespaceLabels map[string]string) ([]resolve.Policy, error)
}

// podStore reads the unfinished pods. An empty namespace means all namespaces. Listed pods are shared and must not be changed.
type podStore interface {
	Pod(key types.NamespacedName) (*corev1.Pod, error)
	Pods(namespace string) ([]*podcache.Pod, error)
}

// resolvedPod is a pod with the policies and declarations that apply to it.
type resolvedPod struct {
	pod        *corev1.Pod
	policies   []resolve.Policy // all that select the pod
	options    resolve.Options
	resolution resolve.Resolution
	// noTemplate is true if a policy includes injected containers, and the operator may not read the pod's Job.
	noTemplate bool
}

// needsAttention reports whether anything declares a sidecar in the pod, or tries to, or did when the pod was marked.
func (r resolvedPod) needsAttention() bool {
	return len(r.resolution.Enforced.Sidecars) > 0 || r.resolution.DryRun != nil || len(r.resolution.Warnings) > 0 || plan.MarkDecides(r.pod)
}

// livePod reads a pod from the API server. The error is NotFound if the pod is gone or has another UID.
func (c *clusterReader) livePod(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := c.live.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	if pod.UID != uid {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return pod, nil
}

// resolve resolves the declarations for the pod. A pod on which the operator cannot act gets a warning instead.
func (c *clusterReader) resolve(ctx context.Context, pod *corev1.Pod) (resolvedPod, error) {
	if reason, message := plan.Unprocessable(pod); reason != "" {
		return resolvedPod{pod: pod, resolution: resolve.Resolution{Warnings: []resolve.Warning{{Reason: reason, Message: message}}}}, nil
	}
	options := c.options.Resolve
	if !c.options.Capabilities.NamespacesOnly {
		namespace := observe.NamespaceMetadata()
		err := c.cache.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)
		if apierrors.IsNotFound(err) {
			// The namespace may have opted out, and selectors with NotIn and DoesNotExist would match it. Its pods are enqueued when it
			// comes into the cache.
			return resolvedPod{pod: pod}, nil
		}
		if err != nil {
			return resolvedPod{}, fmt.Errorf("get namespace of pod: %w", err)
		}
		options.NamespaceLabels = namespace.Labels
	}
	if resolve.OptedOut(pod, options) {
		return resolvedPod{pod: pod, options: options}, nil
	}
	policies, err := c.policies.Policies(pod, options.NamespaceLabels)
	if err != nil {
		return resolvedPod{}, err
	}
	resolved := resolvedPod{pod: pod, policies: policies, options: options}
	if slices.ContainsFunc(policies, func(p resolve.Policy) bool { return p.Spec.IncludeInjected }) {
		template, err := c.templates.of(ctx, pod)
		if err != nil {
			return resolvedPod{}, err
		}
		resolved.options.Injected, resolved.noTemplate = resolve.Injected(pod, template.containers), template.forbidden
	}
	resolved.resolution = resolve.Resolve(pod, policies, resolved.options)
	return resolved, nil
}

// snapshot gathers what a decision about the pod depends on, for one view of its containers. The caller adds what podStates
// remembers, and Denied.
func (c *clusterReader) snapshot(ctx context.Context, pod *corev1.Pod, view resolve.View) (plan.Snapshot, error) {
	var node *corev1.Node
	if c.options.NodeKindRules.All == "" {
		var err error
		if node, err = observe.Node(ctx, c.cache, pod); err != nil {
			return plan.Snapshot{}, err
		}
	}
	attempts, err := observe.Attempts(ctx, c.terminators, pod)
	invalidAnnotation := ""
	if errors.Is(err, terminator.ErrInvalidAnnotation) {
		invalidAnnotation, err = err.Error(), nil
	}
	if err != nil {
		return plan.Snapshot{}, err
	}
	capabilities := c.options.Capabilities
	capabilities.CRRServed = c.crrServed()
	return plan.Snapshot{
		Pod:               pod,
		View:              view,
		Node:              c.options.NodeKindRules.Classify(node),
		Kubelet:           observe.Kubelet(node),
		Capabilities:      capabilities,
		Attempts:          attempts,
		InvalidAnnotation: invalidAnnotation,
	}, nil
}
