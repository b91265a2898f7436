// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies;clustersidecarterminationpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies/status;clustersidecarterminationpolicies/status,verbs=update

// restFactor is the minimum pause before the next scan of a policy's pods, in multiples of the scan's duration. The status of a
// policy with very many pods then takes at most a twentieth of one CPU.
const restFactor = 20

// PolicyReconciler writes the status of one policy, and nothing else.
type PolicyReconciler struct {
	client   client.Client
	reader   *clusterReader
	prePulls *prePulls
	reporter *reporter
	states   *policyStates
	// podStates has what the operator remembers about pods, which decisions depend on.
	podStates *podStates
	// unguarded is rollup.Policy.Unguarded, as far as is known.
	unguarded atomic.Bool
	options   Options
}

// Reconcile summarizes one policy's pods into its status. It writes the status only if it changed, at most once per StatusPeriod,
// and rests after a long scan of the pods. It is idempotent.
func (r *PolicyReconciler) Reconcile(ctx context.Context, ref resolve.PolicyRef) (ctrl.Result, error) {
	object, err := readPolicy(ctx, r.client, ref)
	if apierrors.IsNotFound(err) {
		r.states.forget(ref)
		r.reporter.take(ref)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get policy: %w", err)
	}
	now := r.options.Clock.Now()
	if wait := r.states.get(ref).notBefore.Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	policy, invalid := resolve.Parse(object)
	summary, err := r.summarize(ctx, policy, invalid)
	if err != nil {
		return ctrl.Result{}, err
	}
	scanned := r.options.Clock.Now()
	r.delay(ref, scanned.Add(restFactor*scanned.Sub(now)))
	pull, err := r.prePulls.decide(ctx, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	tally, repeated := r.takeTally(object)
	_, old := object.Parts()
	input := rollup.Policy{Generation: object.GetGeneration(), Spec: policy.Spec, Invalid: invalid, Unguarded: r.unguarded.Load(), PrePull: pull.Report}
	status := rollup.Summarize(input, *old, summary, tally, now)
	return r.report(ctx, object, status, tally, repeated)
}

// report writes the status, and keeps the tally if that fails. After a repeated write it requeues the policy for newer tallies.
func (r *PolicyReconciler) report(
	ctx context.Context, object v1alpha1.Policy, status v1alpha1.PolicyStatus, tally rollup.Tally, repeated bool,
) (ctrl.Result, error) {
	if err := r.write(ctx, object, status); err != nil {
		r.keepTally(object, status, tally, err)
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.states.setUnanswered(resolve.RefOf(object), nil)
	if repeated {
		return ctrl.Result{RequeueAfter: max(r.options.StatusPeriod, time.Millisecond)}, nil
	}
	return ctrl.Result{}, nil
}

// delay puts the next status write off. Without a StatusPeriod nothing waits.
func (r *PolicyReconciler) delay(ref resolve.PolicyRef, until time.Time) {
	if r.options.StatusPeriod > 0 {
		r.states.delay(ref, until)
	}
}

// takeTally returns what to add to the status. While the outcome of the last write is unknown, it returns the tally of that write
// again, and repeated is true. At most one of two writes from one resourceVersion succeeds, so nothing is counted twice.
func (r *PolicyReconciler) takeTally(object v1alpha1.Policy) (tally rollup.Tally, repeated bool) {
	ref := resolve.RefOf(object)
	last := r.states.get(ref).unanswered
	if last == nil {
		return r.reporter.take(ref), false
	}
	if object.GetResourceVersion() == last.resourceVersion {
		return last.tally, true
	}
	r.states.setUnanswered(ref, nil)
	if _, status := object.Parts(); !last.appliedTo(*status) {
		r.reporter.restore(ref, last.tally)
	}
	return r.reporter.take(ref), false
}

// keepTally keeps the tally of a failed write. The object is as it was sent.
func (r *PolicyReconciler) keepTally(object v1alpha1.Policy, status v1alpha1.PolicyStatus, tally rollup.Tally, err error) {
	ref := resolve.RefOf(object)
	notApplied := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	switch {
	case r.states.get(ref).unanswered != nil:
		// The tally is the one of the unanswered write, whose outcome is still unknown.
	case notApplied || tally.Empty():
		r.reporter.restore(ref, tally)
	default:
		r.states.setUnanswered(ref, &statusWrite{object.GetResourceVersion(), status, tally})
	}
}

// write replaces the status if it changed. It includes counts of zero, which users read in columns. A policy from a stale cache
// has totals that are too low; the write then fails with a conflict.
func (r *PolicyReconciler) write(ctx context.Context, object v1alpha1.Policy, status v1alpha1.PolicyStatus) error {
	_, written := object.Parts()
	if equality.Semantic.DeepEqual(*written, status) {
		return nil
	}
	*written = status
	if err := r.client.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("write status of policy: %w", err)
	}
	r.delay(resolve.RefOf(object), r.options.Clock.Now().Add(r.options.StatusPeriod))
	return nil
}

// summarize sums up the unfinished pods with a container that the policy names.
func (r *PolicyReconciler) summarize(ctx context.Context, policy resolve.Policy, invalid error) (rollup.PodSummary, error) {
	var summary rollup.PodSummary
	if invalid != nil {
		return summary, nil
	}
	pods, err := r.reader.pods.Pods(policy.Ref.Namespace)
	if err != nil {
		return summary, err
	}
	for _, pod := range pods {
		if err := r.addPod(ctx, policy, pod, &summary); err != nil {
			return summary, err
		}
	}
	return summary, nil
}

// addPod adds the pod to the summary if the policy selects it and gives one of its containers a role. It leaves out a pod on which the
// operator panics, so that the policy still gets a status. That pod's own reconcile reports the panic.
func (r *PolicyReconciler) addPod(ctx context.Context, policy resolve.Policy, cached *podcache.Pod, summary *rollup.PodSummary) error {
	defer func() {
		if cause := recover(); cause != nil {
			reportPanic(panicInStatus, client.ObjectKeyFromObject(cached), cause)
		}
	}()
	// The pod's own labels come first: they cost little and exclude most pods of a large cluster.
	metadata, err := cached.DecodeMetadata()
	if err != nil || !policy.MaySelect(metadata) {
		return err
	}
	pod, err := cached.Decode()
	if err != nil || !policy.GivesRoles(pod, resolve.Options{}) && !policy.Spec.IncludeInjected {
		return err
	}
	resolved, err := r.reader.resolve(ctx, pod)
	if err != nil {
		return err
	}
	selected := slices.ContainsFunc(resolved.Policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref })
	noTemplate := resolved.JobUnreadable && policy.Spec.IncludeInjected
	if !selected || !policy.GivesRoles(pod, resolved.Options(r.options.Resolve)) && !noTemplate {
		return nil
	}
	observation, err := r.observation(ctx, policy, resolved)
	if err != nil {
		return err
	}
	summary.Add(observation)
	return nil
}

func (r *PolicyReconciler) observation(ctx context.Context, policy resolve.Policy, resolved resolvedPod) (rollup.PodObservation, error) {
	o := rollup.PodObservation{Namespace: resolved.Pod.Namespace, Pod: resolved.Pod.Name}
	view, dryRun := resolved.resolution.Enforced, !policy.Spec.Enforcement.Acts() && resolved.resolution.DryRun != nil
	if dryRun {
		view = *resolved.resolution.DryRun
	}
	o.Applies = slices.Contains(view.Policies, policy.Ref)
	snapshot, err := r.reader.snapshot(ctx, resolved, view)
	if err != nil {
		return o, err
	}
	snapshot.AssumeMarked = dryRun
	r.podStates.recall(&snapshot)
	o.NoTemplate = resolved.JobUnreadable && policy.Spec.IncludeInjected
	o.Decision = plan.Next(snapshot, r.options.Clock.Now())
	for _, override := range resolved.resolution.Overrides {
		if override.Policy == policy.Ref {
			o.Overrides = append(o.Overrides, override)
		}
	}
	for _, substitution := range o.Decision.Substitutions {
		if o.Applies && policy.Role(resolved.Pod, substitution.Container, resolved.Options(r.options.Resolve)) == resolve.RoleSidecar {
			o.Substitutions = append(o.Substitutions, substitution)
		}
	}
	if answer := o.Decision.MarkDenied; answer != "" && o.Applies && len(o.Substitutions) == 0 {
		o.Substitutions = []plan.Substitution{{Reason: v1alpha1.ReasonWriteRefused, Message: "exit codes of sidecars count as in Kubernetes, because " +
			"the API server denied the mark of the pod; grant the operator this permission, or exempt it from the webhook: " + answer}}
	}
	return o, nil
}

// readPolicy returns a copy of the policy, which the caller may change.
func readPolicy(ctx context.Context, c client.Reader, ref resolve.PolicyRef) (v1alpha1.Policy, error) {
	var policy v1alpha1.Policy = &v1alpha1.SidecarTerminationPolicy{}
	if ref.Kind == resolve.KindCluster {
		policy = &v1alpha1.ClusterSidecarTerminationPolicy{}
	}
	return policy, c.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, policy)
}
