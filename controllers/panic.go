// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// The places in which a panic is recovered, as a metric counts them.
const (
	panicInTransform = "transform"
	panicInReconcile = "reconcile"
	panicInStatus    = "status"
)

// panicMessage is what users read of a panic. What it was is in the operator's log.
const panicMessage = "the operator failed on this pod by a defect of its own and leaves it alone; its log has the details: please report them"

// panicLogs bounds the stacks that are logged: somebody may update a pod many times a second.
var panicLogs = &rate.Sometimes{First: 10, Interval: time.Minute}

// reportPanic counts a panic and logs it with the object's name.
func reportPanic(place string, key client.ObjectKey, cause any) {
	panicsTotal.WithLabelValues(place).Inc()
	panicLogs.Do(func() {
		ctrl.Log.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic; the object is left alone",
			"place", place, "namespace", key.Namespace, "name", key.Name, "stack", string(debug.Stack()))
	})
}

// recovering makes a transform of a cache that never fails. After an error the informer would list for ever
// (k8s.io/client-go tools/cache/the_real_fifo.go, addReplaceToItemsLocked), and after a panic the operator would end.
// Instead the cache gets a stub of the pod in question; any other object it gets as it is.
func recovering(trim func(any) any) toolscache.TransformFunc {
	return func(object any) (trimmed any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				trimmed = afterPanic(object, cause)
			}
		}()
		return trim(object), nil
	}
}

func afterPanic(object, cause any) any {
	switch object := object.(type) {
	case *corev1.Pod:
		reportPanic(panicInTransform, client.ObjectKeyFromObject(object), cause)
		return plan.Stub(object, v1alpha1.ReasonInternalError, panicMessage)
	case client.Object:
		reportPanic(panicInTransform, client.ObjectKeyFromObject(object), cause)
	}
	return object
}

// recoverReconcile turns a panic of a reconcile into an error, so that the pod is looked at again at growing intervals, and
// reports it on the pod. It must be deferred.
func (r *PodReconciler) recoverReconcile(ctx context.Context, request reconcile.Request, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	reportPanic(panicInReconcile, request.NamespacedName, cause)
	*err = fmt.Errorf("reconcile pod: panic: %v", cause)
	if pod, readErr := r.world.pod(ctx, request.NamespacedName); readErr == nil {
		podEvent{corev1.EventTypeWarning, v1alpha1.ReasonInternalError, panicMessage, nil}.emit(r.journal.recorder, pod)
	}
}
