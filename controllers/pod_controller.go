// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// PodReconciler ends the sidecars of one pod. It alone writes pods and ContainerRecreateRequests.
type PodReconciler struct {
	reader      *clusterReader
	terminators map[v1alpha1.Mode]terminator.Terminator
	states      *podStates
	options     Options
}

// Reconcile observes one pod, decides, acts and reports. It is idempotent.
func (r *PodReconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	defer r.recoverReconcile(request, &err)
	pod, err := r.reader.pods.Pod(request.NamespacedName)
	if apierrors.IsNotFound(err) {
		left := r.states.left(request.NamespacedName)
		if !left.read {
			return ctrl.Result{RequeueAfter: left.wait}, nil
		}
		pod, err = r.reader.livePod(ctx, request.NamespacedName, left.uid)
	}
	if apierrors.IsNotFound(err) {
		r.states.gone(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get pod: %w", err)
	}
	if r.states.precedesMark(pod) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	resolved, err := r.reader.resolve(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !resolved.needsAttention() {
		r.states.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	snapshot, err := r.reader.snapshot(ctx, resolved, resolved.resolution.Enforced)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.states.precedesCRR(snapshot) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	r.states.complete(&snapshot)
	decision, execution := r.act(ctx, snapshot)
	r.states.record(resolved, decision, execution)
	requeueAfter := plan.Soonest(decision.RequeueAfter, r.dryRun(snapshot, resolved))
	if kept := r.states.forgetFinished(pod, decision); kept && requeueAfter == 0 {
		requeueAfter = laterLook
	}
	if execution.err != nil {
		return ctrl.Result{Priority: requeuePriority(decision)}, execution.err // the queue backs off
	}
	requeueAfter = plan.Soonest(requeueAfter, execution.retryAfter(decision.RequeueAfter))
	return ctrl.Result{RequeueAfter: requeueAfter, Priority: requeuePriority(decision)}, nil
}

// requeuePriority is the priority with which the pod is requeued: full once its main containers are done, and otherwise low for a mark that
// waits. Nil keeps the priority of this reconcile.
func requeuePriority(decision plan.Decision) *int {
	switch {
	case !decision.MainsDone.IsZero():
		return new(fullPriority)
	case decision.MarkWaits:
		return new(handler.LowPriority)
	}
	return nil
}

// recoverReconcile turns a panic of a reconcile into an error, so that the queue retries the pod with backoff, and reports it on the
// pod. It must be deferred.
func (r *PodReconciler) recoverReconcile(request ctrl.Request, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	reportPanic(panicInReconcile, request.NamespacedName, cause)
	*err = fmt.Errorf("reconcile pod: panic: %v", cause)
	if pod, readErr := r.reader.pods.Pod(request.NamespacedName); readErr == nil {
		r.states.reporter.event(pod, corev1.EventTypeWarning, v1alpha1.ReasonInternalError, panicMessage, nil)
	}
}

// dryRun decides as if the pod's DryRun policies were enforced, reports the decision without carrying it out, and returns its
// requeue delay.
func (r *PodReconciler) dryRun(snapshot plan.Snapshot, resolved resolvedPod) time.Duration {
	if resolved.resolution.DryRun == nil {
		return 0
	}
	snapshot.View, snapshot.AssumeMarked = *resolved.resolution.DryRun, true
	decision := plan.Next(snapshot, r.options.Clock.Now())
	r.states.recordDryRun(resolved, decision)
	if len(decision.Writes) > 0 {
		return 0 // nothing is written that could time out
	}
	return decision.RequeueAfter
}
