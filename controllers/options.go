// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Options are the settings of the operator that the reconcilers need.
type Options struct {
	// Resolve holds the defaults of policies and whether the environment variables count.
	Resolve resolve.Options
	// PodPhase says when the operator may write phases, and MaxGracePeriod up to which grace period of a pod.
	PodPhase       plan.PodPhaseUse
	MaxGracePeriod time.Duration
	// CRRDisabled and ImageDisabled forbid that mode. The operator then needs no rights for it.
	CRRDisabled   bool
	ImageDisabled bool
	// Images are the quick-exit images that policies may name.
	Images imagelist.List
	// PrePullDisabled forbids pull jobs. The operator then needs no rights for them.
	PrePullDisabled bool
	// PrePullNamespace is where the pull jobs of cluster policies live; empty when it is not known.
	PrePullNamespace string
	// SettlePeriod is how long a pod must have been unchanged before its phase is written.
	SettlePeriod time.Duration
	// NodeMarks says which nodes have no kubelet, or no Kruise daemon.
	NodeMarks plan.NodeMarks
	// StatusPeriod is the shortest time between two writes of one policy's status.
	StatusPeriod time.Duration
	// MaxConcurrentReconciles bounds how many pods are worked on at once.
	MaxConcurrentReconciles int
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Terminator ends containers of one pod by one mechanism.
type Terminator interface {
	// Mode names the mechanism.
	Mode() v1alpha1.Mode
	// Observe returns the operator's past attempts on the pod. It reads the cache at most.
	Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error)
	// Terminate starts the action's attempt. Repeating it is safe; changed is false when there was nothing left to do.
	Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (changed bool, err error)
}
