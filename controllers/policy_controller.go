// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies;clustersidecarterminationpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies/status;clustersidecarterminationpolicies/status,verbs=update

// PolicyReconciler writes the status of one policy. It acts on nothing else.
type PolicyReconciler struct {
	client   client.Client
	world    *world
	pods     podLister
	prePulls *prePulls
	journal  *journal
	options  Options
	pace     statusPace
	unsure   unsureWrites
}

// Reconcile summarises one policy's pods into its status: one write at most, and none when nothing changed, when the
// status was written less than StatusPeriod ago, or when the last look at all the pods has taken long. Repeating it is safe.
func (r *PolicyReconciler) Reconcile(ctx context.Context, ref resolve.PolicyRef) (ctrl.Result, error) {
	object, err := readPolicy(ctx, r.client, ref)
	if apierrors.IsNotFound(err) {
		r.pace.forget(ref)
		r.unsure.forget(ref)
		r.journal.take(ref)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get policy: %w", err)
	}
	now := r.options.Clock.Now()
	if wait := r.pace.next(ref).Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	policy, invalid := object.parse()
	census, err := r.observe(ctx, policy, invalid)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.pace.looked(ref, now, r.options.Clock.Now())
	decision, err := r.prePulls.decide(ctx, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	tally, repeated := r.takeTally(object)
	summary := rollup.Policy{Generation: object.GetGeneration(), Spec: object.spec, Invalid: invalid, PrePull: decision.Report}
	status := rollup.Summarize(summary, *object.status, census, tally, now)
	if err := r.write(ctx, object, status); err != nil {
		r.keepTally(object, status, tally, err)
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.unsure.forget(ref)
	if repeated {
		// What has come about since then is still to be added.
		return ctrl.Result{RequeueAfter: max(r.options.StatusPeriod, time.Millisecond)}, nil
	}
	return ctrl.Result{}, nil
}

// takeTally returns what is to be added to the status. After a write of which the answer was lost, and as long as it
// cannot be seen whether it has come about, that is the tally of that write alone, and repeated is true: of two writes
// that go out from one version only one can succeed.
func (r *PolicyReconciler) takeTally(object *policyObject) (tally rollup.Tally, repeated bool) {
	unsure, ok := r.unsure.get(object.ref)
	if ok && object.GetResourceVersion() == unsure.resourceVersion {
		return unsure.tally, true
	}
	r.unsure.forget(object.ref)
	if ok && !unsure.hasTotals(*object.status) {
		r.journal.putBack(object.ref, unsure.tally)
	}
	return r.journal.take(object.ref), false
}

// keepTally keeps what a failed write was to add. The object is as it was sent.
func (r *PolicyReconciler) keepTally(object *policyObject, status v1alpha1.PolicyStatus, tally rollup.Tally, err error) {
	refused := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	_, before := r.unsure.get(object.ref)
	switch {
	case before:
		// The tally is that of the write before, which is still not known to have failed.
	case refused || tally.Empty():
		r.journal.putBack(object.ref, tally)
	default:
		r.unsure.add(object.ref, unsureWrite{object.GetResourceVersion(), status, tally})
	}
}

// write replaces the status if it changed; counts of zero are written too, for users read them in columns. It fails with
// a conflict when the policy was read from a cache that lags behind, whose totals would be too low.
func (r *PolicyReconciler) write(ctx context.Context, object *policyObject, status v1alpha1.PolicyStatus) error {
	if equality.Semantic.DeepEqual(*object.status, status) {
		return nil
	}
	*object.status = status
	if err := r.client.Status().Update(ctx, object.Object); err != nil {
		return fmt.Errorf("write status of policy: %w", err)
	}
	r.pace.written(object.ref, r.options.Clock.Now())
	return nil
}

// observe looks at every live pod of which the policy names a container.
func (r *PolicyReconciler) observe(ctx context.Context, policy resolve.Policy, invalid error) (rollup.Census, error) {
	var census rollup.Census
	if invalid != nil {
		return census, nil
	}
	pods, err := r.pods.LivePods(ctx, policy.Ref.Namespace)
	if err != nil {
		return census, err
	}
	for _, pod := range pods {
		if err := r.observePod(ctx, policy, pod, &census); err != nil {
			return census, err
		}
	}
	return census, nil
}

// observePod adds the pod to the census if the policy selects it and names a container of it. A pod on which the operator
// panics is left out, so that it does not keep the policy from having a status; its own reconcile reports it.
func (r *PolicyReconciler) observePod(ctx context.Context, policy resolve.Policy, pod *corev1.Pod, census *rollup.Census) error {
	defer func() {
		if cause := recover(); cause != nil {
			reportPanic(panicInStatus, client.ObjectKeyFromObject(pod), cause)
		}
	}()
	// The pod's own labels come first: they are at hand, and leave few pods of a large cluster over.
	if !policy.MaySelect(pod) || !namesContainer(policy, pod) {
		return nil
	}
	subject, err := r.world.subject(ctx, pod)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(subject.policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref }) {
		return nil
	}
	observation, err := r.observation(ctx, policy, subject)
	if err != nil {
		return err
	}
	census.Add(observation)
	return nil
}

func (r *PolicyReconciler) observation(ctx context.Context, policy resolve.Policy, subject subject) (rollup.Observation, error) {
	o := rollup.Observation{Namespace: subject.pod.Namespace, Pod: subject.pod.Name}
	view := subject.resolution.Enforced
	if !policy.Spec.Enforcement.Acts() && subject.resolution.DryRun != nil {
		view = *subject.resolution.DryRun
	}
	o.Governs = governs(view, policy.Ref)
	snapshot, err := r.world.snapshot(ctx, subject.pod, view)
	if err != nil {
		return o, err
	}
	snapshot.Refused = r.journal.refused(subject.pod)
	o.Decision = plan.Next(snapshot, r.options.Clock.Now())
	for _, loss := range subject.resolution.Losses {
		if loss.Loser == policy.Ref {
			o.Losses = append(o.Losses, loss)
		}
	}
	for _, substitution := range o.Decision.Substitutions {
		if policy.Names(substitution.Container) && o.Governs {
			o.Substitutions = append(o.Substitutions, substitution)
		}
	}
	return o, nil
}

func namesContainer(policy resolve.Policy, pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return policy.Names(c.Name) })
}

// policyObject is a policy of either kind, with the parts that both have.
type policyObject struct {
	client.Object
	ref    resolve.PolicyRef
	spec   *v1alpha1.PolicySpec
	status *v1alpha1.PolicyStatus
	parse  func() (resolve.Policy, error)
}

// readPolicy reads a copy of the policy that may be changed.
func readPolicy(ctx context.Context, c client.Reader, ref resolve.PolicyRef) (*policyObject, error) {
	if ref.Kind == resolve.KindCluster {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{}
		err := c.Get(ctx, types.NamespacedName{Name: ref.Name}, policy)
		return &policyObject{policy, ref, &policy.Spec.PolicySpec, &policy.Status,
			func() (resolve.Policy, error) { return resolve.FromCluster(policy) }}, err
	}
	policy := &v1alpha1.SidecarTerminationPolicy{}
	err := c.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, policy)
	return &policyObject{policy, ref, &policy.Spec.PolicySpec, &policy.Status,
		func() (resolve.Policy, error) { return resolve.FromNamespaced(policy) }}, err
}
