// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podcache"
)

// recoverReconcile turns a panic of a reconcile into an error, so that the queue retries the pod with backoff, and reports it on the
// pod. It must be deferred.
func (r *PodReconciler) recoverReconcile(ctx context.Context, request reconcile.Request, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	podcache.ReportPanic(podcache.PanicInReconcile, request.NamespacedName, cause)
	*err = fmt.Errorf("reconcile pod: panic: %v", cause)
	if pod, readErr := r.reader.pod(ctx, request.NamespacedName); readErr == nil {
		r.states.reporter.event(pod, podEvent{corev1.EventTypeWarning, v1alpha1.ReasonInternalError, podcache.PanicMessage, nil})
	}
}
