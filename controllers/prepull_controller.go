// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/pulljob"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// pullRefusalRetry is the wait after OpenKruise has refused a job: until its manager runs again, or runs with the gate.
const pullRefusalRetry = 30 * time.Second

// PrePullReconciler creates and deletes the pull jobs of one policy. It writes nothing else: the policy's status, which says
// how the jobs are, is PolicyReconciler's.
type PrePullReconciler struct {
	client   client.Reader
	prePulls *prePulls
	// notify asks for a policy's status to be written.
	notify func(policy resolve.PolicyRef)
}

// Reconcile makes one policy's pull jobs those that it wants. Repeating it is safe. The jobs of a policy that has gone are
// left to Kubernetes' garbage collection.
func (r *PrePullReconciler) Reconcile(ctx context.Context, ref resolve.PolicyRef) (ctrl.Result, error) {
	object, err := readPolicy(ctx, r.client, ref)
	if apierrors.IsNotFound(err) {
		r.prePulls.refusals.set(ref, "")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get policy: %w", err)
	}
	decision, err := r.prePulls.decide(ctx, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	refused, err := r.create(ctx, object, decision.Create)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, job := range decision.Delete {
		err := r.prePulls.jobs.Delete(ctx, job)
		if apierrors.IsConflict(err) {
			// Another job has taken the name since the jobs were read.
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	if refused {
		return ctrl.Result{RequeueAfter: plan.Soonest(decision.RequeueAfter, pullRefusalRetry)}, nil
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// create creates the jobs until one is refused, of which the policy's status is to tell.
func (r *PrePullReconciler) create(ctx context.Context, object *policyObject, jobs []prepull.Job) (refused bool, err error) {
	refusal := ""
	for _, job := range jobs {
		err := r.prePulls.jobs.Create(ctx, object.toPrePull(), job)
		if errors.Is(err, pulljob.ErrRefused) {
			refusal = err.Error()
			break
		}
		if err != nil {
			return false, err
		}
	}
	if r.prePulls.refusals.set(object.ref, refusal) {
		r.notify(object.ref)
	}
	return refusal != "", nil
}
