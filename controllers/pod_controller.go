// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
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
	terminators map[v1alpha1.Mode]Terminator
	states      *podStates
	options     Options
}

// Reconcile observes one pod, decides, acts and reports. It is idempotent.
func (r *PodReconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	defer r.recoverReconcile(ctx, request, &err)
	pod, err := r.reader.pod(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		return r.forget(ctx, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get pod: %w", err)
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
	snapshot.UnchangedSince, snapshot.ContainersUnchangedSince = r.states.unchangedSince(pod, r.options.Clock.Now())
	snapshot.DrainsSince = r.states.drainsSince(snapshot, r.options.Clock.Now())
	snapshot.StabilizationWindow = r.states.stabilizationWindow(snapshot, r.options.Clock.Now())
	snapshot.Kubelet = r.states.kubelet(snapshot, r.options.Clock.Now())
	decision, actErr := r.act(ctx, snapshot)
	r.states.record(resolved, decision, actErr)
	r.states.recordPhase(snapshot, decision)
	requeueAfter := plan.Soonest(decision.RequeueAfter, r.dryRun(snapshot, resolved))
	if actErr != nil {
		return ctrl.Result{}, actErr
	}
	return ctrl.Result{RequeueAfter: requeueAfter}, nil
}

// recoverReconcile turns a panic of a reconcile into an error, so that the queue retries the pod with backoff, and reports it on the
// pod. It must be deferred.
func (r *PodReconciler) recoverReconcile(ctx context.Context, request ctrl.Request, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	podcache.ReportPanic(podcache.PanicInReconcile, request.NamespacedName, cause)
	*err = fmt.Errorf("reconcile pod: panic: %v", cause)
	if pod, readErr := r.reader.pod(ctx, request.NamespacedName); readErr == nil {
		r.states.reporter.event(pod, corev1.EventTypeWarning, v1alpha1.ReasonInternalError, podcache.PanicMessage, nil)
	}
}

// forget forgets a pod that has left the caches. If the outcome of the last write or of the teardown is unknown, it reads the pod
// live first.
func (r *PodReconciler) forget(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	if uid, unknown := r.states.unknownOutcome(key); unknown {
		mode, inTeardown, err := r.reader.liveOutcome(ctx, key, uid)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("read the outcome of the last write to a pod: %w", err)
		}
		r.states.resolveUnknownOutcome(key, mode, inTeardown)
	}
	return ctrl.Result{RequeueAfter: r.states.forgetMissing(key)}, nil
}

// act decides and carries the decision out. It returns the decision with the actions that changed something. After a denied
// write it decides once more without the mode that needs the write.
func (r *PodReconciler) act(ctx context.Context, snapshot plan.Snapshot) (plan.Decision, error) {
	decision := plan.Next(snapshot, r.options.Clock.Now())
	err := r.terminate(ctx, snapshot.Pod, &decision)
	for denied := denialIn(err); denied != nil && snapshot.Denied[denied.mode] == ""; denied = denialIn(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("The API server denied a write; trying without it", "mode", denied.mode, "cause", denied.cause.Error())
		snapshot.Denied = withDenial(snapshot.Denied, denied)
		err = nil
		// The write of the phase before the denial may be enough.
		if len(decision.Actions) > 0 {
			break
		}
		decision = plan.Next(snapshot, r.options.Clock.Now())
		err = r.terminate(ctx, snapshot.Pod, &decision)
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

// terminate carries the actions out in order and keeps those that changed something. It stops at the first error, which is a
// writeError. It requeues the pod at the attempt's timeout, because a CRR may end without a change of the pod.
func (r *PodReconciler) terminate(ctx context.Context, pod *corev1.Pod, decision *plan.Decision) error {
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
// requeue delay. The release of a phase guard is not part of the report: the operator does that under any policy.
func (r *PodReconciler) dryRun(snapshot plan.Snapshot, resolved resolvedPod) time.Duration {
	if resolved.resolution.DryRun == nil {
		return 0
	}
	snapshot.View = *resolved.resolution.DryRun
	decision := plan.Next(snapshot, r.options.Clock.Now())
	decision.Actions = slices.DeleteFunc(decision.Actions, func(action plan.Action) bool { return action.ReleasePhase })
	r.states.recordDryRun(resolved, decision)
	return decision.RequeueAfter
}
