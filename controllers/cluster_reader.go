// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// clusterReader reads what decisions depend on. It writes nothing.
type clusterReader struct {
	podinput.Reader
	readers
	crrServed func() bool
	options   Options
}

// readers read what the manager's client does not.
type readers struct {
	live     client.Reader // the API server, without a cache
	policies policyLister
	pods     podStore
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
	PodsOnNode(name string) ([]*podcache.Pod, error)
}

// resolvedPod is what was read of a pod, and what the declarations mean for it.
type resolvedPod struct {
	podinput.Input
	resolution resolve.Resolution
}

// needsAttention reports whether anything declares a sidecar in the pod, or tries to, or did when the pod was marked.
func (r resolvedPod) needsAttention() bool {
	return len(r.resolution.Enforced.Sidecars) > 0 || r.resolution.DryRun != nil || len(r.resolution.Warnings) > 0 ||
		plan.MarkDecides(r.Pod) || r.JobUnreadable
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

// resolve resolves the declarations for the pod.
func (c *clusterReader) resolve(ctx context.Context, pod *corev1.Pod) (resolvedPod, error) {
	resolved := resolvedPod{Input: podinput.Input{Pod: pod}}
	if !c.options.Capabilities.NamespacesOnly {
		namespace := podinput.NamespaceMetadata()
		err := c.Objects.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)
		if apierrors.IsNotFound(err) {
			// The namespace may have opted out, and selectors with NotIn and DoesNotExist would match it. Its pods are enqueued when it
			// comes into the cache.
			return resolved, nil
		}
		if err != nil {
			return resolvedPod{}, fmt.Errorf("get namespace of pod: %w", err)
		}
		resolved.NamespaceLabels = namespace.Labels
	}
	if resolve.OptedOut(pod, resolved.Options(c.options.Resolve)) {
		return resolved, nil
	}
	var err error
	if resolved.Policies, err = c.policies.Policies(pod, resolved.NamespaceLabels); err != nil {
		return resolvedPod{}, err
	}
	if err := c.AddJob(ctx, &resolved.Input); err != nil {
		return resolvedPod{}, err
	}
	resolved.resolution = resolved.Resolve(c.options.Resolve)
	return resolved, nil
}

// snapshot returns what a decision about the pod depends on, for one view of its containers. The caller adds what podStates remembers, and
// Denied.
func (c *clusterReader) snapshot(ctx context.Context, resolved resolvedPod, view resolve.View) (plan.Snapshot, error) {
	if err := c.AddState(ctx, &resolved.Input); err != nil {
		return plan.Snapshot{}, err
	}
	capabilities := c.options.Capabilities
	capabilities.CRRServed = c.crrServed()
	return resolved.Snapshot(view, capabilities), nil
}
