// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Options are the operator's settings and its clock.
type Options struct {
	settings.Operator
	Clock clock.PassiveClock
}

// Terminator ends containers of a pod by one mode.
type Terminator interface {
	Mode() v1alpha1.Mode
	// Observe returns the operator's past attempts on the pod. It reads no more than the cache.
	Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error)
	// Terminate starts the action's attempt. It is idempotent; changed is false if it was a no-op.
	Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (changed bool, err error)
}

// Marker writes the mark by which the admission policy decides a pod's outcome. It is idempotent.
type Marker interface {
	Mark(ctx context.Context, pod *corev1.Pod, mark plan.Mark) (*corev1.Pod, error)
}
