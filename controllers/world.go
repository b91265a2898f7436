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
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// world reads what decisions depend on. It writes nothing.
type world struct {
	cache       client.Reader
	policies    policyLister
	teardown    client.Reader // pods whose phase was written
	server      client.Reader // no cache
	terminators []Terminator
	available   func() bool // whether Kruise can be used
	options     Options
}

// policyLister finds the policies that select a pod, in no order. A policy whose selector cannot be parsed selects
// nothing. The result must not be changed.
type policyLister interface {
	Policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error)
}

// subject is a pod with the declarations that bear on it.
type subject struct {
	pod        *corev1.Pod
	policies   []resolve.Policy // all that select the pod
	resolution resolve.Resolution
}

// concerns reports whether anything declares a container of the pod a sidecar, or tries to, or the operator has left a
// guard on the pod's phase.
func (s subject) concerns() bool {
	return len(s.resolution.Enforced.Targets) > 0 || s.resolution.DryRun != nil || len(s.resolution.Warnings) > 0 ||
		plan.PhaseIsGuarded(s.pod)
}

// pod returns the pod from the cache of unfinished pods or from that of pods whose phase was written, whichever has seen
// more of it: the write of a phase takes the pod from one to the other, and either may be told of it first. The error is
// NotFound when it is in neither.
func (w *world) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	unfinished, written := &corev1.Pod{}, &corev1.Pod{}
	err, writtenErr := w.cache.Get(ctx, key, unfinished), w.teardown.Get(ctx, key, written)
	switch {
	case apierrors.IsNotFound(err):
		return written, writtenErr
	case err != nil:
		return nil, err
	case apierrors.IsNotFound(writtenErr):
		return unfinished, nil
	case writtenErr != nil:
		return nil, writtenErr
	}
	return newer(unfinished, written)
}

// subject resolves the declarations for the pod. For one that cannot be acted on no declaration counts, and a warning says so.
func (w *world) subject(ctx context.Context, pod *corev1.Pod) (subject, error) {
	if reason, message := plan.Unprocessable(pod); reason != "" {
		return subject{pod: pod, resolution: resolve.Resolution{Warnings: []resolve.Warning{{Reason: reason, Message: message}}}}, nil
	}
	policies, err := w.policies.Policies(ctx, pod)
	if err != nil {
		return subject{}, err
	}
	return subject{pod: pod, policies: policies, resolution: resolve.Resolve(pod, policies, w.options.Resolve)}, nil
}

// snapshot gathers what a decision about the pod depends on, for one view of its containers. QuietSince, ContainersSince and
// Refused are left for the caller that is about to act.
func (w *world) snapshot(ctx context.Context, pod *corev1.Pod, view resolve.View) (plan.Snapshot, error) {
	node, err := w.node(ctx, pod)
	if err != nil {
		return plan.Snapshot{}, err
	}
	attempts, err := observe.Attempts(ctx, w.terminators, pod)
	unreadable := ""
	if errors.Is(err, terminator.ErrUnreadable) {
		unreadable, err = err.Error(), nil
	}
	if err != nil {
		return plan.Snapshot{}, err
	}
	return plan.Snapshot{
		Pod:  pod,
		View: view,
		Node: w.options.NodeMarks.Classify(node),
		Capabilities: plan.Capabilities{
			CRR: w.available(), PodPhase: w.options.PodPhase, MaxGracePeriod: w.options.MaxGracePeriod,
			CRRDisabled: w.options.CRRDisabled, ImageDisabled: w.options.ImageDisabled, Images: w.options.Images,
		},
		Attempts:     attempts,
		Unreadable:   unreadable,
		SettlePeriod: w.options.SettlePeriod,
	}, nil
}

// absent looks up a pod that no cache has. It returns the mode that the newest attempt on it belongs to, and whether its
// containers are still to be torn down; empty and false when there is no such attempt, or no such pod.
func (w *world) absent(ctx context.Context, key types.NamespacedName, uid types.UID) (mode v1alpha1.Mode, runs bool, err error) {
	pod := &corev1.Pod{}
	if err := w.server.Get(ctx, key, pod); err != nil {
		return "", false, client.IgnoreNotFound(err)
	}
	if pod.UID != uid {
		return "", false, nil
	}
	attempts, err := observe.Attempts(ctx, w.terminators, pod)
	if errors.Is(err, terminator.ErrUnreadable) {
		err = nil
	}
	mode, _ = plan.Tried(attempts)
	return mode, plan.IsTearingDown(pod), err
}

// node returns the pod's node, or nil while it has none or the node is not known.
func (w *world) node(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	return observe.Node(ctx, w.cache, pod)
}

// governs reports whether the policy decides over a container of the view.
func governs(view resolve.View, policy resolve.PolicyRef) bool {
	return slices.ContainsFunc(view.Targets, func(t resolve.Target) bool { return t.Policy != nil && *t.Policy == policy })
}
