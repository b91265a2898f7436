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
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// conflictRetry is the requeue delay after a write conflict. The watch usually enqueues the pod sooner.
const conflictRetry = time.Second

// PodReconciler ends the sidecars of one pod. It alone writes pods and ContainerRecreateRequests.
type PodReconciler struct {
	reader      *clusterReader
	marker      Marker
	terminators map[v1alpha1.Mode]Terminator
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
	snapshot, err := r.reader.snapshot(ctx, pod, resolved.resolution.Enforced)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.states.complete(&snapshot)
	decision, actErr := r.act(ctx, snapshot)
	r.states.record(resolved, decision, actErr)
	requeueAfter := plan.Soonest(decision.RequeueAfter, r.dryRun(snapshot, resolved))
	if kept := r.states.forgetFinished(pod, decision); kept && requeueAfter == 0 {
		requeueAfter = laterLook
	}
	priority := requeuePriority(decision)
	if actErr != nil {
		return ctrl.Result{Priority: priority}, actErr
	}
	return ctrl.Result{RequeueAfter: requeueAfter, Priority: priority}, nil
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

// act decides and carries the decision out. It returns the decision with the actions that changed something. After a denied
// write it decides once more without the mode that needs the write.
func (r *PodReconciler) act(ctx context.Context, snapshot plan.Snapshot) (plan.Decision, error) {
	decision := plan.Next(snapshot, r.options.Clock.Now())
	err := r.write(ctx, snapshot.Pod, &decision)
	for denied := denialIn(err); denied != nil && snapshot.Denied[denied.mode] == ""; denied = denialIn(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("The API server denied a write; trying without it", "mode", denied.mode, "cause", denied.cause.Error())
		snapshot.Denied = withDenial(snapshot.Denied, denied)
		err = nil
		// What has been done before the denial may be enough.
		if len(decision.Actions) > 0 {
			break
		}
		decision = plan.Next(snapshot, r.options.Clock.Now())
		err = r.write(ctx, snapshot.Pod, &decision)
	}
	if decision.Denied = snapshot.Denied; len(decision.Denied) > 0 {
		// The next write may be accepted although nothing about the pod changes.
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, denialWait(decision, r.options.Clock.Now()))
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The cache was stale. The next reconcile decides on the current pod.
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, conflictRetry)
		err = nil
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Decided about a pod", "stage", decision.Stage, "reason", decision.Reason,
		"message", decision.Message, "actions", len(decision.Actions), "requeueAfter", decision.RequeueAfter)
	return decision, err
}

// write writes the mark, or carries the actions out in order and keeps those that changed something. It stops at the first error,
// which is a writeError. It requeues the pod at the attempt's timeout, because a CRR may end without a change of the pod.
func (r *PodReconciler) write(ctx context.Context, pod *corev1.Pod, decision *plan.Decision) error {
	if decision.Mark != nil {
		marked, err := r.marker.Mark(ctx, pod, *decision.Mark)
		if err != nil {
			decision.Mark = nil
			return &writeError{v1alpha1.ModePodPhase, err}
		}
		r.states.marked(pod, marked)
		if marked.ResourceVersion == pod.ResourceVersion && decision.RequeueAfter == 0 {
			// No event follows a write that changed nothing.
			decision.RequeueAfter = conflictRetry
		}
		return nil
	}
	planned := decision.Actions
	decision.Actions = nil
	for _, action := range planned {
		changed, err := r.terminators[action.Mode].Terminate(ctx, pod, action)
		if err != nil {
			return &writeError{action.Mode, err}
		}
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, action.Timeout)
		if changed {
			decision.Actions = append(decision.Actions, action)
		}
	}
	return nil
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
	return decision.RequeueAfter
}
