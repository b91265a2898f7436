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

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/prepull/pulljob"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// pullDenialRetry is the requeue delay after OpenKruise has denied a job, because its manager is down or lacks the feature gate.
const pullDenialRetry = 30 * time.Second

// prePulls decides about the pull jobs of policies. It writes nothing.
type prePulls struct {
	jobs    *pulljob.Jobs
	options Options
	states  *policyStates
}

// decide reads the policy's jobs and returns what to do about them and how they are.
func (p *prePulls) decide(ctx context.Context, policy v1alpha1.Policy) (prepull.Decision, error) {
	existing, err := p.jobs.Of(ctx, policy.GetUID())
	if err != nil {
		return prepull.Decision{}, err
	}
	return prepull.Decide(prepull.Situation{
		Policy:       policy,
		Namespace:    p.options.PrePullNamespace,
		DefaultImage: p.options.Resolve.Image,
		Capabilities: p.options.Capabilities,
		Served:       p.jobs.Availability.Available(),
		Existing:     existing,
		Denial:       p.states.get(resolve.RefOf(policy)).pullDenial,
	}), nil
}

// PrePullReconciler creates and deletes the pull jobs of one policy, and writes nothing else. PolicyReconciler reports on the jobs
// in the policy's status.
type PrePullReconciler struct {
	client   client.Reader
	prePulls *prePulls
	// notify enqueues a policy, so that its status is written.
	notify func(policy resolve.PolicyRef)
}

// Reconcile creates and deletes pull jobs until the policy has those that it wants. It is idempotent. Kubernetes' garbage collector
// deletes the jobs of a deleted policy.
func (r *PrePullReconciler) Reconcile(ctx context.Context, ref resolve.PolicyRef) (ctrl.Result, error) {
	policy, err := readPolicy(ctx, r.client, ref)
	if apierrors.IsNotFound(err) {
		r.prePulls.states.setPullDenial(ref, "")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get policy: %w", err)
	}
	decision, err := r.prePulls.decide(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	denied, err := r.create(ctx, policy, decision.Create)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, job := range decision.Delete {
		err := r.prePulls.jobs.Delete(ctx, job)
		if apierrors.IsConflict(err) {
			// The cache was stale: another job has the name now.
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	if denied {
		return ctrl.Result{RequeueAfter: pullDenialRetry}, nil
	}
	return ctrl.Result{}, nil
}

// create creates the jobs until one is denied, and enqueues the policy to report that.
func (r *PrePullReconciler) create(ctx context.Context, policy v1alpha1.Policy, jobs []prepull.Job) (denied bool, err error) {
	denial := ""
	for _, job := range jobs {
		err := r.prePulls.jobs.Create(ctx, policy, job)
		if errors.Is(err, pulljob.ErrDenied) {
			denial = err.Error()
			break
		}
		if err != nil {
			return false, err
		}
	}
	if ref := resolve.RefOf(policy); r.prePulls.states.setPullDenial(ref, denial) {
		r.notify(ref)
	}
	return denial != "", nil
}
