// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/policyindex"
	"github.com/sidecar-termination/operator/internal/prepull/pulljob"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// errorRetry is the backoff after the first error about a pod. It doubles up to maxErrorRetry, so that pods recover soon after an
// outage of the API server.
const (
	errorRetry    = 5 * time.Millisecond
	maxErrorRetry = time.Minute
)

// kruiseTimeout is how long the controllers' start waits until Kruise's presence is known. The controllers themselves would fail after
// two minutes.
const kruiseTimeout = 45 * time.Second

// Options are the operator's settings and its clock.
type Options struct {
	settings.Operator
	Clock clock.PassiveClock
	// LedBefore returns until when another process led, or zero if that is unknown. It is called when this process leads.
	LedBefore func() time.Time
}

// Setup adds the reconcilers and their caches to the manager, whose cache must be one of podcache.NewCache with
// podcache.ManagerOptions for the namespaces of the options.
func Setup(ctx context.Context, mgr manager.Manager, options Options) error {
	recorder, err := newEventRecorder(mgr)
	if err != nil {
		return err
	}
	_, err = setup(ctx, mgr, recorder, options)
	return err
}

// setup is Setup with a recorder of events, and returns the reconcilers.
func setup(ctx context.Context, mgr manager.Manager, recorder events.EventRecorder, options Options) (reconcilers, error) {
	caches, err := newCaches(ctx, mgr, options)
	if err != nil {
		return reconcilers{}, err
	}
	var queues queues
	kruise, err := followKruise(mgr, caches.pods, options, &queues)
	if err != nil {
		return reconcilers{}, err
	}
	reporter := newReporter(recorder, options.Clock, queues.policies.add)
	r := newReconcilers(mgr.GetClient(), caches, kruise, reporter, options)
	guardChanged := func(ctx context.Context) { forEachPolicy(ctx, mgr.GetCache(), queues.policies.add) }
	if err := watchAdmission(mgr, &r.policies.unguarded, guardChanged, options); err != nil {
		return reconcilers{}, fmt.Errorf("watch admission policies: %w", err)
	}
	if err := watchPods(mgr, r.pods, &queues.pods); err != nil {
		return reconcilers{}, fmt.Errorf("set up pod controller: %w", err)
	}
	if err := watchPolicies(mgr, "policy", r.policies, &queues.policies, options); err != nil {
		return reconcilers{}, fmt.Errorf("set up policy controller: %w", err)
	}
	if !options.Capabilities.PrePull || options.Capabilities.NamespacesOnly {
		return r, nil
	}
	if err := watchPolicies(mgr, "prepull", r.prePulls, &queues.prePulls, options); err != nil {
		return reconcilers{}, fmt.Errorf("set up pre-pull controller: %w", err)
	}
	return r, nil
}

// newCaches adds the informers to the manager's cache, which must not have been started. They are filled before the reconcilers run,
// also on a replica that waits for the lease. It fails if the cluster lacks the operator's kinds.
func newCaches(ctx context.Context, mgr manager.Manager, options Options) (readers, error) {
	var err error
	informers := func(object client.Object) (found []toolscache.SharedIndexInformer) {
		if err == nil {
			found, err = podcache.Informers(ctx, mgr.GetCache(), object)
		}
		return found
	}
	ofPods := informers(&podcache.Pod{})
	var ofPolicies []toolscache.SharedIndexInformer
	for _, kind := range policyKinds(options) {
		ofPolicies = append(ofPolicies, informers(kind)...)
	}
	if options.NodeKindRules.All == "" {
		informers(&corev1.Node{})
	}
	if !options.Capabilities.NamespacesOnly {
		informers(podinput.NamespaceMetadata())
	}
	if err != nil {
		return readers{}, err
	}
	pods, err := podcache.NewStores(ofPods)
	if err != nil {
		return readers{}, err
	}
	policies, err := policyindex.New(ofPolicies...)
	return readers{live: mgr.GetAPIReader(), policies: policies, pods: pods}, err
}

// queues are the controllers' queues for items that no watch enqueues.
type queues struct {
	pods               queue[reconcile.Request]
	policies, prePulls queue[resolve.PolicyRef]
}

// addPolicy enqueues a policy's pull jobs and its status.
func (q *queues) addPolicy(ref resolve.PolicyRef) {
	q.prePulls.add(ref)
	q.policies.add(ref)
}

// kruiseKinds tell which of OpenKruise's kinds can be used.
type kruiseKinds struct {
	crrs     *optionalkind.Availability
	pullJobs *optionalkind.Availability
}

// followKruise makes the manager follow the OpenKruise kinds that the operator may use. The controllers start once discovery
// has found which of these kinds are served. A kind that is not followed counts as unavailable and needs no rights.
func followKruise(mgr manager.Manager, pods podStore, options Options, queues *queues) (kruiseKinds, error) {
	kinds := kruiseKinds{
		crrs: crr.NewAvailability(mgr, kruiseChanged(pods, &queues.pods), func(pod types.NamespacedName) {
			queues.pods.add(reconcile.Request{NamespacedName: pod})
		}),
		pullJobs: pulljob.NewAvailability(mgr, func(ctx context.Context) {
			forEachPolicy(ctx, mgr.GetCache(), queues.addPolicy)
		}, queues.addPolicy),
	}
	var follow []*optionalkind.Availability
	// An operator for single namespaces may not read the definitions and the webhook.
	readable := !options.Capabilities.NamespacesOnly
	if options.Capabilities.CRR && readable {
		follow = append(follow, kinds.crrs)
		queues.pods.ready = kruiseKnown(kinds.crrs)
	}
	if options.Capabilities.PrePull && readable {
		follow = append(follow, kinds.pullJobs)
		queues.prePulls.ready = kruiseKnown(kinds.pullJobs)
	}
	queues.policies.ready = kruiseKnown(follow...)
	for _, follower := range follow {
		if err := mgr.Add(follower); err != nil {
			return kinds, fmt.Errorf("follow OpenKruise: %w", err)
		}
	}
	return kinds, nil
}

// reconcilers are the three reconcilers of the operator.
type reconcilers struct {
	pods     *PodReconciler
	policies *PolicyReconciler
	prePulls *PrePullReconciler
}

// newTerminators returns one terminator for each mode.
func newTerminators(c client.Client, live client.Reader, kruise kruiseKinds, options Options) []terminator.Terminator {
	return []terminator.Terminator{
		&crr.Terminator{Client: c, Server: live, Clock: options.Clock, Availability: kruise.crrs},
		&podphase.Terminator{Client: c},
		&image.Terminator{Client: c, Clock: options.Clock},
	}
}

// newReconcilers wires the reconcilers up. The client reads the manager's cache.
func newReconcilers(c client.Client, from readers, kruise kruiseKinds, reporter *reporter, options Options) reconcilers {
	podStates, policyStates := newPodStates(reporter, options.Clock), &policyStates{}
	reader := &clusterReader{
		Reader:  podinput.Reader{Objects: c, Jobs: podinput.NewJobTemplates(from.live, options.Clock), NodeKindRules: options.NodeKindRules},
		readers: from, crrServed: kruise.crrs.Available, options: options,
	}
	byMode := map[v1alpha1.Mode]terminator.Terminator{}
	for _, t := range newTerminators(c, from.live, kruise, options) {
		byMode[t.Mode()] = t
		reader.Observers = append(reader.Observers, t)
	}
	p := &prePulls{jobs: &pulljob.Jobs{Client: c, Server: from.live, Availability: kruise.pullJobs}, options: options, states: policyStates}
	return reconcilers{
		pods: &PodReconciler{reader: reader, terminators: byMode, states: podStates, options: options},
		policies: &PolicyReconciler{
			client: c, reader: reader, prePulls: p, reporter: reporter, states: policyStates,
			podStates: podStates, options: options,
		},
		prePulls: &PrePullReconciler{client: c, prePulls: p, notify: reporter.notify},
	}
}

// watchPods adds the pod controller. It watches the unfinished pods, and everything that a decision about a pod depends on.
func watchPods(mgr manager.Manager, r *PodReconciler, queue *queue[reconcile.Request]) error {
	unfinished, pods := mgr.GetCache(), r.reader.pods
	watches := []source.Source{source.Kind[client.Object](unfinished, &podcache.Pod{}, &podHandler{}), queue}
	for _, kind := range policyKinds(r.options) {
		watches = append(watches, source.Kind(unfinished, kind, podsIn(pods, client.Object.GetNamespace), declarationChanged()))
	}
	if r.options.NodeKindRules.All == "" {
		watches = append(watches, source.Kind[client.Object](unfinished, &corev1.Node{}, podsOfNode(pods), nodeKindChanged(r.options.NodeKindRules)))
	}
	if !r.options.Capabilities.NamespacesOnly {
		namespaces := podinput.NamespaceMetadata()
		watches = append(watches, source.Kind[client.Object](unfinished, namespaces, podsIn(pods, client.Object.GetName), namespaceLabelsChanged()))
	}
	if r.options.LedBefore != nil {
		watches = append(watches, &missedFailures{
			reader: r.reader.live, namespaces: r.options.WatchNamespaces, states: r.states, ledBefore: r.options.LedBefore,
		})
	}
	return addController("pod", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: r.options.MaxConcurrentReconciles,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](errorRetry, maxErrorRetry),
		NewQueue:                newFairQueue,
	}, watches)
}

// watchPolicies adds a controller of policies. Changes of specs and the queue enqueue policies.
func watchPolicies(
	mgr manager.Manager, name string, r reconcile.TypedReconciler[resolve.PolicyRef], queue *queue[resolve.PolicyRef], options Options,
) error {
	watches := []source.TypedSource[resolve.PolicyRef]{queue}
	for _, kind := range policyKinds(options) {
		itself := handler.TypedEnqueueRequestsFromMapFunc(toPolicy)
		watches = append(watches, source.TypedKind(mgr.GetCache(), kind, itself, declarationChanged()))
	}
	return addController(name, mgr, controller.TypedOptions[resolve.PolicyRef]{Reconciler: r}, watches)
}

// policyKinds returns an object of each kind of policies. An operator for single namespaces has no permission for kinds without a namespace.
func policyKinds(options Options) []client.Object {
	if options.Capabilities.NamespacesOnly {
		return []client.Object{&v1alpha1.SidecarTerminationPolicy{}}
	}
	return []client.Object{&v1alpha1.SidecarTerminationPolicy{}, &v1alpha1.ClusterSidecarTerminationPolicy{}}
}

// addController adds a controller with its watches, which reconciles until the operator stops.
func addController[request comparable](
	name string, mgr manager.Manager, options controller.TypedOptions[request], watches []source.TypedSource[request],
) error {
	options.Reconciler = untilStopped[request]{options.Reconciler}
	c, err := controller.NewTyped(name, mgr, options)
	if err != nil {
		return err
	}
	for _, watch := range watches {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

// kruiseKnown returns a function that waits until the presence of the kinds is known, up to the timeout.
func kruiseKnown(kinds ...*optionalkind.Availability) func(ctx context.Context) {
	return func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, kruiseTimeout)
		defer cancel()
		for _, kind := range kinds {
			if !kind.WaitUntilKnown(limited) && ctx.Err() == nil {
				ctrl.Log.Info("Starting although the presence of OpenKruise is still unknown", "waited", kruiseTimeout)
				return
			}
		}
	}
}

// kruiseChanged returns a function that enqueues every pod when OpenKruise becomes available or unavailable.
func kruiseChanged(pods podStore, queue *queue[reconcile.Request]) func(ctx context.Context) {
	return func(ctx context.Context) {
		all, err := pods.Pods(metav1.NamespaceAll)
		queue.use(func(inner podQueue) { enqueuePods(ctx, inner, all, err) })
	}
}

// untilStopped reconciles until the operator stops. A controller that stops still empties its queue, and each item would fail with an error
// in the log. The next leader reads everything anyway.
type untilStopped[request comparable] struct {
	reconcile.TypedReconciler[request]
}

// Reconcile does nothing, and reports no error, once the context has ended.
func (r untilStopped[request]) Reconcile(ctx context.Context, item request) (ctrl.Result, error) {
	if ctx.Err() == nil {
		if result, err := r.TypedReconciler.Reconcile(ctx, item); ctx.Err() == nil {
			return result, err
		}
	}
	return ctrl.Result{}, nil
}
