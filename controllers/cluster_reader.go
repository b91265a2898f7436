// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// clusterReader reads what decisions depend on. It writes nothing.
type clusterReader struct {
	cache       client.Reader // the manager's cache
	teardown    client.Reader // the cache of pods in teardown
	live        client.Reader // the API server, without a cache
	policies    policyLister
	terminators []Terminator
	crrServed   func() bool
	kubelets    *kubelets
	options     Options
}

// policyLister finds the policies that select a pod. A policy whose selector cannot be parsed selects nothing. The result must
// not be changed.
type policyLister interface {
	Policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error)
}

// podLister lists the unfinished pods, and those in teardown that still run a container. Each pod is listed once, in its newer
// version. An empty namespace means all namespaces. The pods are shared and must not be changed.
type podLister interface {
	Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error)
}

// resolvedPod is a pod with the policies and declarations that apply to it.
type resolvedPod struct {
	pod        *corev1.Pod
	policies   []resolve.Policy // all that select the pod
	resolution resolve.Resolution
}

// needsAttention reports whether anything declares a sidecar in the pod, or tries to, or the operator has left a guard on
// the pod's phase.
func (r resolvedPod) needsAttention() bool {
	return len(r.resolution.Enforced.Sidecars) > 0 || r.resolution.DryRun != nil || len(r.resolution.Warnings) > 0 ||
		plan.PhaseIsGuarded(r.pod)
}

// pod returns the pod in the newer version of both caches: the write of a phase moves the pod from one to the other, and either
// may see it first. The error is NotFound if the pod is in neither.
func (c *clusterReader) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	unfinished, inTeardown := &corev1.Pod{}, &corev1.Pod{}
	err, teardownErr := c.cache.Get(ctx, key, unfinished), c.teardown.Get(ctx, key, inTeardown)
	switch {
	case apierrors.IsNotFound(err):
		return inTeardown, teardownErr
	case err != nil:
		return nil, err
	case apierrors.IsNotFound(teardownErr):
		return unfinished, nil
	case teardownErr != nil:
		return nil, teardownErr
	}
	return podcache.Newer(unfinished, inTeardown)
}

// resolve resolves the declarations for the pod. A pod on which the operator cannot act gets a warning instead.
func (c *clusterReader) resolve(ctx context.Context, pod *corev1.Pod) (resolvedPod, error) {
	if reason, message := plan.Unprocessable(pod); reason != "" {
		return resolvedPod{pod: pod, resolution: resolve.Resolution{Warnings: []resolve.Warning{{Reason: reason, Message: message}}}}, nil
	}
	policies, err := c.policies.Policies(ctx, pod)
	if err != nil {
		return resolvedPod{}, err
	}
	return resolvedPod{pod: pod, policies: policies, resolution: resolve.Resolve(pod, policies, c.options.Resolve)}, nil
}

// snapshot gathers what a decision about the pod depends on, for one view of its containers. The caller fills in
// UnchangedSince, ContainersUnchangedSince, DrainsSince and Denied.
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
		Pod:                 pod,
		View:                view,
		Node:                c.options.NodeKindRules.Classify(node),
		Kubelet:             c.kubelets.of(node),
		Capabilities:        capabilities,
		Attempts:            attempts,
		InvalidAnnotation:   invalidAnnotation,
		StabilizationWindow: c.options.StabilizationWindow,
	}, nil
}

// liveOutcome reads a pod that is in no cache from the API server. It returns the mode of the newest attempt on the pod, or none,
// and whether the pod is still in teardown. A pod that is gone or has another UID has neither.
func (c *clusterReader) liveOutcome(ctx context.Context, key types.NamespacedName, uid types.UID) (mode v1alpha1.Mode, inTeardown bool, err error) {
	pod := &corev1.Pod{}
	if err := c.live.Get(ctx, key, pod); err != nil {
		return "", false, client.IgnoreNotFound(err)
	}
	if pod.UID != uid {
		return "", false, nil
	}
	attempts, err := observe.Attempts(ctx, c.terminators, pod)
	if errors.Is(err, terminator.ErrInvalidAnnotation) {
		err = nil
	}
	mode, _ = plan.Tried(attempts)
	return mode, plan.IsTearingDown(pod), err
}

// appliesTo reports whether the policy applies to a container of the view.
func appliesTo(view resolve.View, policy resolve.PolicyRef) bool {
	return slices.ContainsFunc(view.Sidecars, func(s resolve.Sidecar) bool { return s.Policy != nil && *s.Policy == policy })
}
