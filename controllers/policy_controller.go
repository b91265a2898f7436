// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	"github.com/sidecar-termination/operator/internal/terminator"
)

// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies;clustersidecarterminationpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=sidecartermination.dev,resources=sidecarterminationpolicies/status;clustersidecarterminationpolicies/status,verbs=update

// PolicyReconciler writes the status of one policy. It acts on nothing else.
type PolicyReconciler struct {
	client  client.Client
	world   *world
	journal *journal
	options Options
	written writeTimes
}

// Reconcile summarises one policy's pods into its status: one write at most, and none when nothing changed or when the
// status was written less than StatusPeriod ago. Repeating it is safe.
func (r *PolicyReconciler) Reconcile(ctx context.Context, ref resolve.PolicyRef) (ctrl.Result, error) {
	object, err := r.get(ctx, ref)
	if apierrors.IsNotFound(err) {
		r.written.forget(ref)
		r.journal.take(ref)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get policy: %w", err)
	}
	now := r.options.Clock.Now()
	if wait := r.written.at(ref).Add(r.options.StatusPeriod).Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	policy, invalid := object.parse()
	observations, err := r.observe(ctx, policy, invalid)
	if err != nil {
		return ctrl.Result{}, err
	}
	tally := r.journal.take(ref)
	status := rollup.Summarize(
		rollup.Policy{Generation: object.GetGeneration(), Spec: object.spec, Invalid: invalid}, *object.status, observations, tally, now)
	if err := r.write(ctx, object, status); err != nil {
		r.journal.putBack(ref, tally)
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, nil
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
	r.written.set(object.ref, r.options.Clock.Now())
	return nil
}

// observe looks at every live pod of which the policy names a container.
func (r *PolicyReconciler) observe(ctx context.Context, policy resolve.Policy, invalid error) ([]rollup.Observation, error) {
	if invalid != nil {
		return nil, nil
	}
	pods, err := r.livePods(ctx, policy.Ref.Namespace)
	if err != nil {
		return nil, err
	}
	var observations []rollup.Observation
	for i := range pods {
		if !namesContainer(policy, &pods[i]) {
			continue
		}
		subject, err := r.world.subject(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(subject.policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref }) {
			observation, err := r.observation(ctx, policy, subject)
			if err != nil {
				return nil, err
			}
			observations = append(observations, observation)
		}
	}
	return observations, nil
}

// livePods lists the unfinished pods, and those whose phase was written while a container still runs. An empty namespace
// means all.
func (r *PolicyReconciler) livePods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var unfinished, written corev1.PodList
	if err := r.world.cache.List(ctx, &unfinished, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	if err := r.world.teardown.List(ctx, &written, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods whose phase was written: %w", err)
	}
	pods := slices.Clone(unfinished.Items)
	for i := range written.Items {
		if pod := &written.Items[i]; plan.HasTerminalPhase(pod) && anyContainerRunning(pod) {
			pods = append(pods, *pod)
		}
	}
	return pods, nil
}

func (r *PolicyReconciler) observation(ctx context.Context, policy resolve.Policy, subject subject) (rollup.Observation, error) {
	o := rollup.Observation{Namespace: subject.pod.Namespace, Pod: subject.pod.Name}
	view := subject.resolution.Enforced
	if policy.Spec.Enforcement == v1alpha1.EnforcementDryRun && subject.resolution.DryRun != nil {
		view = *subject.resolution.DryRun
	}
	o.Governs = governs(view, policy.Ref)
	snapshot, err := r.world.snapshot(ctx, subject.pod, view)
	switch {
	case errors.Is(err, terminator.ErrUnreadable):
		// One pod that somebody has spoilt must not keep the status of the others from being written.
		o.Decision = plan.Decision{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Message: err.Error()}
	case err != nil:
		return o, err
	default:
		o.Decision = plan.Next(snapshot, r.options.Clock.Now())
	}
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

func anyContainerRunning(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// policyObject is a policy of either kind, with the parts that both have.
type policyObject struct {
	client.Object
	ref    resolve.PolicyRef
	spec   *v1alpha1.PolicySpec
	status *v1alpha1.PolicyStatus
	parse  func() (resolve.Policy, error)
}

// get reads a copy of the policy that may be changed.
func (r *PolicyReconciler) get(ctx context.Context, ref resolve.PolicyRef) (*policyObject, error) {
	if ref.Kind == resolve.KindCluster {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{}
		err := r.client.Get(ctx, types.NamespacedName{Name: ref.Name}, policy)
		return &policyObject{policy, ref, &policy.Spec.PolicySpec, &policy.Status,
			func() (resolve.Policy, error) { return resolve.FromCluster(policy) }}, err
	}
	policy := &v1alpha1.SidecarTerminationPolicy{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, policy)
	return &policyObject{policy, ref, &policy.Spec.PolicySpec, &policy.Status,
		func() (resolve.Policy, error) { return resolve.FromNamespaced(policy) }}, err
}

// writeTimes notes when each status was last written, to bound how often that happens.
type writeTimes struct {
	mu    sync.Mutex
	times map[resolve.PolicyRef]time.Time
}

func (w *writeTimes) at(ref resolve.PolicyRef) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times[ref]
}

func (w *writeTimes) set(ref resolve.PolicyRef, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times == nil {
		w.times = map[resolve.PolicyRef]time.Time{}
	}
	w.times[ref] = now
}

func (w *writeTimes) forget(ref resolve.PolicyRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.times, ref)
}
