// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/pulljob"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// errorRetry is the wait after the first error about a pod. It doubles up to maxErrorRetry, so that pods are not kept
// waiting long after the API server has been down long.
const (
	errorRetry    = 5 * time.Millisecond
	maxErrorRetry = time.Minute
)

// kruiseTimeout is how long the operator waits at its start until it is known whether Kruise is there. The controllers
// themselves would wait no longer than two minutes.
const kruiseTimeout = 45 * time.Second

// eventSource is the name under which the operator reports events.
const eventSource = "sidecar-termination-operator"

// Setup adds the reconcilers, and what they need, to the manager, whose cache must have been made with CacheOptions.
func Setup(ctx context.Context, mgr manager.Manager, options Options) error {
	_, err := setup(ctx, mgr, options)
	return err
}

// setup is Setup, and returns what it has added.
func setup(ctx context.Context, mgr manager.Manager, options Options) (reconcilers, error) {
	teardown, err := newTeardownCache(ctx, mgr, options.Clock)
	if err != nil {
		return reconcilers{}, err
	}
	if err := startInformers(ctx, mgr.GetCache()); err != nil {
		return reconcilers{}, err
	}
	index, err := newPolicyIndex(ctx, mgr.GetCache())
	if err != nil {
		return reconcilers{}, err
	}
	pods, err := newPodStores(ctx, mgr.GetCache(), teardown)
	if err != nil {
		return reconcilers{}, err
	}
	var queues queues
	kruise, err := followKruise(mgr, pods, options, &queues)
	if err != nil {
		return reconcilers{}, err
	}
	journal := newJournal(mgr.GetEventRecorder(eventSource), options.Clock, queues.policies.add)
	r := newReconcilers(mgr.GetClient(), index, pods, readers{teardown, mgr.GetAPIReader()}, kruise, journal, options)
	if err := watchPods(mgr, r.pods, pods, teardown, &queues.pods); err != nil {
		return reconcilers{}, fmt.Errorf("set up pod controller: %w", err)
	}
	if err := watchPolicies(mgr, "policy", r.policies, &queues.policies); err != nil {
		return reconcilers{}, fmt.Errorf("set up policy controller: %w", err)
	}
	if options.PrePullDisabled {
		return r, nil
	}
	if err := watchPolicies(mgr, "prepull", r.prePulls, &queues.prePulls); err != nil {
		return reconcilers{}, fmt.Errorf("set up pre-pull controller: %w", err)
	}
	return r, nil
}

// queues are those by which other parts than watches ask for reconciles.
type queues struct {
	pods               queue[reconcile.Request]
	policies, prePulls queue[resolve.PolicyRef]
}

// askForPolicy asks for a policy's pull jobs and its status.
func (q *queues) askForPolicy(ref resolve.PolicyRef) {
	q.prePulls.add(ref)
	q.policies.add(ref)
}

// kruiseKinds tell which of OpenKruise's kinds can be used.
type kruiseKinds struct {
	requests *crr.Availability
	pullJobs *pulljob.Availability
}

// followKruise has the manager follow those of OpenKruise's kinds that the operator may use, and the controllers wait until
// it is known of each whether it is there. What is never started finds nothing, and needs no rights.
func followKruise(mgr manager.Manager, pods podStores, options Options, queues *queues) (kruiseKinds, error) {
	kinds := kruiseKinds{
		requests: crr.NewAvailability(mgr, kruiseChanged(pods, &queues.pods), func(pod types.NamespacedName) {
			queues.pods.add(reconcile.Request{NamespacedName: pod})
		}),
	}
	var err error
	kinds.pullJobs, err = pulljob.NewAvailability(mgr, pullJobsChanged(mgr.GetCache(), queues), queues.askForPolicy)
	if err != nil {
		return kinds, err
	}
	var follow []kruiseFollower
	if !options.CRRDisabled {
		follow = append(follow, kinds.requests)
		queues.pods.ready = kruiseKnown(kinds.requests)
	}
	if !options.PrePullDisabled {
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

// reconcilers are all of them.
type reconcilers struct {
	pods     *PodReconciler
	policies *PolicyReconciler
	prePulls *PrePullReconciler
}

// readers are those beside the manager's cache.
type readers struct{ teardown, server client.Reader }

// newReconcilers puts the parts together. The client reads the manager's cache.
func newReconcilers(
	c client.Client, policies policyLister, live podLister, beside readers, kruise kruiseKinds, journal *journal, options Options,
) reconcilers {
	terminators := []Terminator{
		&crr.Terminator{Client: c, Server: beside.server, Clock: options.Clock, Availability: kruise.requests},
		&podphase.Terminator{Client: c, Clock: options.Clock},
		&image.Terminator{Client: c, Clock: options.Clock},
	}
	w := &world{
		cache: c, policies: policies, teardown: beside.teardown, server: beside.server,
		terminators: terminators, available: kruise.requests.Available, options: options,
	}
	pods := &PodReconciler{world: w, terminators: map[v1alpha1.Mode]Terminator{}, journal: journal, options: options}
	for _, terminator := range terminators {
		pods.terminators[terminator.Mode()] = terminator
	}
	p := &prePulls{jobs: &pulljob.Jobs{Client: c, Availability: kruise.pullJobs}, options: options}
	return reconcilers{
		pods: pods,
		policies: &PolicyReconciler{
			client: c, world: w, pods: live, prePulls: p, journal: journal, options: options, pace: statusPace{period: options.StatusPeriod},
		},
		prePulls: &PrePullReconciler{client: c, prePulls: p, notify: journal.notify},
	}
}

// watchPods adds the pod controller: pods of both caches, and all that may change what is to be done about a pod.
func watchPods(mgr manager.Manager, r *PodReconciler, pods podStores, teardown cache.Cache, queue *queue[reconcile.Request]) error {
	c, err := controller.New("pod", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: r.options.MaxConcurrentReconciles,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](errorRetry, maxErrorRetry),
	})
	if err != nil {
		return err
	}
	own := mgr.GetCache()
	for _, watch := range []source.Source{
		source.Kind(own, &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{}),
		source.Kind(teardown, &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{}, tearingDown()),
		source.Kind(own, &v1alpha1.SidecarTerminationPolicy{}, podsOfPolicy(pods), declarationChanged[*v1alpha1.SidecarTerminationPolicy]()),
		source.Kind(own, &v1alpha1.ClusterSidecarTerminationPolicy{}, podsOfClusterPolicy(pods), declarationChanged[*v1alpha1.ClusterSidecarTerminationPolicy]()),
		source.Kind(own, &corev1.Node{}, podsOfNode(pods), nodeKindChanged(r.options.NodeMarks)),
		source.Kind(own, namespaceMetadata(), podsOfNamespace(pods), namespaceLabelsChanged()),
		queue.source(),
	} {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

// watchPolicies adds a controller of policies: it is asked for a policy when its spec changes, and by way of the queue.
func watchPolicies(mgr manager.Manager, name string, r reconcile.TypedReconciler[resolve.PolicyRef], queue *queue[resolve.PolicyRef]) error {
	c, err := controller.NewTyped(name, mgr, controller.TypedOptions[resolve.PolicyRef]{Reconciler: r})
	if err != nil {
		return err
	}
	for _, watch := range []source.TypedSource[resolve.PolicyRef]{
		source.TypedKind(mgr.GetCache(), &v1alpha1.SidecarTerminationPolicy{},
			toPolicy[*v1alpha1.SidecarTerminationPolicy](resolve.KindNamespaced), declarationChanged[*v1alpha1.SidecarTerminationPolicy]()),
		source.TypedKind(mgr.GetCache(), &v1alpha1.ClusterSidecarTerminationPolicy{},
			toPolicy[*v1alpha1.ClusterSidecarTerminationPolicy](resolve.KindCluster), declarationChanged[*v1alpha1.ClusterSidecarTerminationPolicy]()),
		queue.source(),
	} {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

// kruiseFollower follows one of OpenKruise's kinds.
type kruiseFollower interface {
	manager.Runnable
	WaitUntilKnown(ctx context.Context) bool
}

// kruiseKnown returns a function that waits until it is known which of the kinds are there, and not for ever.
func kruiseKnown(followers ...kruiseFollower) func(ctx context.Context) {
	return func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, kruiseTimeout)
		defer cancel()
		for _, follower := range followers {
			if !follower.WaitUntilKnown(limited) && ctx.Err() == nil {
				ctrl.Log.Info("Going on without OpenKruise, for it is not known whether it is there", "waited", kruiseTimeout)
				return
			}
		}
	}
}

// kruiseChanged returns what is to be done when Kruise comes or goes, either of which may change what is to be done about
// any pod.
func kruiseChanged(pods podStores, queue *queue[reconcile.Request]) func(ctx context.Context, available bool) {
	return func(ctx context.Context, available bool) {
		live, err := pods.LivePods(ctx, metav1.NamespaceAll)
		for _, request := range requestsFor(ctx, live, err) {
			queue.add(request)
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Looking at every pod again", "kruiseAvailable", available)
	}
}

// pullJobsChanged returns what is to be done when pull jobs become served or are no longer.
func pullJobsChanged(c client.Reader, queues *queues) func(ctx context.Context) {
	return func(ctx context.Context) {
		for _, ref := range policiesWithPrePull(ctx, c) {
			queues.askForPolicy(ref)
		}
	}
}
