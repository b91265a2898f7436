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
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// conflictRetry is when a pod is looked at again after a write met a newer version of it. Usually the watch is faster.
const conflictRetry = time.Second

// PodReconciler ends the sidecars of one pod. It is the only writer of pods and ContainerRecreateRequests.
type PodReconciler struct {
	world       *world
	terminators map[v1alpha1.Mode]Terminator
	journal     *journal
	options     Options
	sightings   sightings
}

// Reconcile observes one pod, decides, acts and reports. Repeating it is safe.
func (r *PodReconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	defer r.recoverReconcile(ctx, request, &err)
	pod, err := r.world.pod(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		return r.gone(ctx, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get pod: %w", err)
	}
	subject, err := r.world.subject(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !subject.concerns() {
		r.journal.dismiss(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	snapshot, err := r.world.snapshot(ctx, pod, subject.resolution.Enforced)
	if err != nil {
		return ctrl.Result{}, err
	}
	snapshot.QuietSince, snapshot.ContainersSince = r.sightings.see(pod, r.options.Clock.Now())
	decision, err := r.act(ctx, snapshot)
	ctrl.LoggerFrom(ctx).V(1).Info("Decided", "stage", decision.Stage, "reason", decision.Reason,
		"message", decision.Message, "actions", len(decision.Actions), "requeueAfter", decision.RequeueAfter)
	r.journal.record(subject, decision)
	if err != nil {
		r.journal.doubt(request.NamespacedName)
	}
	requeue := decision.RequeueAfter
	if subject.resolution.DryRun != nil {
		dryRun := r.dryRun(snapshot, subject)
		r.journal.recordDryRun(subject, dryRun)
		requeue = plan.Soonest(requeue, dryRun.RequeueAfter)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: requeue}, nil
}

// gone reports that the pod has left the caches. Where the answer to a write was lost, and nothing was read of the pod since
// then, or where the cache of pods whose phase was written is long behind, it is looked up first what has become of it.
func (r *PodReconciler) gone(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	r.sightings.forget(key)
	if uid, unsure := r.journal.unsure(key); unsure {
		mode, runs, err := r.world.absent(ctx, key, uid)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("look what has become of a pod: %w", err)
		}
		r.journal.settle(key, mode, runs)
	}
	return ctrl.Result{RequeueAfter: r.journal.gone(key)}, nil
}

// act decides, carries the decision out, and returns it with the actions that changed something. When a write is refused
// it decides once more without the mode that needs it.
func (r *PodReconciler) act(ctx context.Context, snapshot plan.Snapshot) (plan.Decision, error) {
	decision := plan.Next(snapshot, r.options.Clock.Now())
	err := r.terminate(ctx, snapshot.Pod, &decision)
	for refused := refusalIn(err); refused != nil && snapshot.Refused[refused.mode] == ""; refused = refusalIn(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("A write was refused; going on without it", "mode", refused.mode, "cause", refused.cause.Error())
		snapshot.Refused = withRefusal(snapshot.Refused, refused)
		err = nil
		// What was done before the refusal, the write of the phase, may be all that is needed.
		if len(decision.Actions) > 0 {
			break
		}
		decision = plan.Next(snapshot, r.options.Clock.Now())
		err = r.terminate(ctx, snapshot.Pod, &decision)
	}
	if decision.Refused = snapshot.Refused; len(decision.Refused) > 0 {
		// The next write may be taken, so that the pod is looked at again although nothing changed.
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, refusalWait(decision, r.options.Clock.Now()))
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The pod has changed or gone since it was read. What to do about that is decided when it is read again.
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, conflictRetry)
		err = nil
	}
	return decision, err
}

// terminate carries the actions out in order and keeps those that changed something. It stops at the first error, which
// is a writeError. An attempt of which nothing is heard brings the pod back at its deadline; a request leaves no trace on
// the pod itself.
func (r *PodReconciler) terminate(ctx context.Context, pod *corev1.Pod, decision *plan.Decision) error {
	planned := decision.Actions
	decision.Actions = nil
	for _, action := range planned {
		changed, err := r.terminators[action.Mode].Terminate(ctx, pod, action)
		if err != nil {
			return &writeError{action.Mode, err}
		}
		decision.RequeueAfter = plan.Soonest(decision.RequeueAfter, action.Deadline)
		if changed {
			decision.Actions = append(decision.Actions, action)
		}
	}
	return nil
}

// dryRun decides as if every DryRun policy were enforced. Nothing of it is carried out. It ends no sidecar to take a guard
// off, which is done whoever decides over the pod.
func (r *PodReconciler) dryRun(snapshot plan.Snapshot, subject subject) plan.Decision {
	snapshot.View = *subject.resolution.DryRun
	decision := plan.Next(snapshot, r.options.Clock.Now())
	decision.Actions = slices.DeleteFunc(decision.Actions, func(action plan.Action) bool { return action.ReleasePhase })
	return decision
}
