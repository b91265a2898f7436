// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// Setup adds both reconcilers, and what they need, to the manager, whose cache must have been made with CacheOptions.
func Setup(ctx context.Context, mgr manager.Manager, options Options) error {
	teardown, err := newTeardownCache(ctx, mgr)
	if err != nil {
		return err
	}
	if err := startInformers(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, indexNodeName, nodeName); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	var pods queue[reconcile.Request]
	var policies queue[resolve.PolicyRef]
	availability := crr.NewAvailability(mgr, kruiseChanged(mgr.GetCache(), &pods), func(pod types.NamespacedName) {
		pods.add(reconcile.Request{NamespacedName: pod})
	})
	// What is never started finds nothing, and needs no rights.
	if !options.CRRDisabled {
		if err := mgr.Add(availability); err != nil {
			return fmt.Errorf("watch for OpenKruise: %w", err)
		}
		pods.ready, policies.ready = kruiseKnown(availability), kruiseKnown(availability)
	}

	journal := newJournal(mgr.GetEventRecorder(eventSource), options.Clock, policies.add)
	podReconciler, policyReconciler := newReconcilers(mgr.GetClient(), teardown, availability, journal, options)
	if err := watchPods(mgr, podReconciler, teardown, &pods); err != nil {
		return fmt.Errorf("set up pod controller: %w", err)
	}
	if err := watchPolicies(mgr, policyReconciler, &policies); err != nil {
		return fmt.Errorf("set up policy controller: %w", err)
	}
	return nil
}

// newReconcilers puts the parts together. The client reads the manager's cache.
func newReconcilers(
	c client.Client, teardown client.Reader, availability *crr.Availability, journal *journal, options Options,
) (*PodReconciler, *PolicyReconciler) {
	terminators := []Terminator{
		&crr.Terminator{Client: c, Availability: availability},
		&podphase.Terminator{Client: c, Clock: options.Clock},
		&image.Terminator{Client: c, Clock: options.Clock},
	}
	w := &world{cache: c, teardown: teardown, terminators: terminators, available: availability.Available, options: options}
	pods := &PodReconciler{world: w, terminators: map[v1alpha1.Mode]Terminator{}, journal: journal, options: options}
	for _, terminator := range terminators {
		pods.terminators[terminator.Mode()] = terminator
	}
	return pods, &PolicyReconciler{client: c, world: w, journal: journal, options: options}
}

// watchPods adds the pod controller: pods of both caches, and all that may change what is to be done about a pod.
func watchPods(mgr manager.Manager, r *PodReconciler, teardown cache.Cache, queue *queue[reconcile.Request]) error {
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
		source.Kind(own, &v1alpha1.SidecarTerminationPolicy{}, podsOfPolicy(own), specChanged[*v1alpha1.SidecarTerminationPolicy]()),
		source.Kind(own, &v1alpha1.ClusterSidecarTerminationPolicy{}, podsOfClusterPolicy(own), specChanged[*v1alpha1.ClusterSidecarTerminationPolicy]()),
		source.Kind(own, &corev1.Node{}, podsOfNode(own), nodeKindChanged(r.options.VirtualNodes)),
		source.Kind(own, namespaceMetadata(), podsOfNamespace(own), namespaceLabelsChanged()),
		queue.source(),
	} {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

// watchPolicies adds the policy controller: policies, and what the journal says of their pods.
func watchPolicies(mgr manager.Manager, r *PolicyReconciler, queue *queue[resolve.PolicyRef]) error {
	c, err := controller.NewTyped("policy", mgr, controller.TypedOptions[resolve.PolicyRef]{Reconciler: r})
	if err != nil {
		return err
	}
	for _, watch := range []source.TypedSource[resolve.PolicyRef]{
		source.TypedKind(mgr.GetCache(), &v1alpha1.SidecarTerminationPolicy{},
			toPolicy[*v1alpha1.SidecarTerminationPolicy](resolve.KindNamespaced), specChanged[*v1alpha1.SidecarTerminationPolicy]()),
		source.TypedKind(mgr.GetCache(), &v1alpha1.ClusterSidecarTerminationPolicy{},
			toPolicy[*v1alpha1.ClusterSidecarTerminationPolicy](resolve.KindCluster), specChanged[*v1alpha1.ClusterSidecarTerminationPolicy]()),
		queue.source(),
	} {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

func nodeName(object client.Object) []string {
	return []string{object.(*corev1.Pod).Spec.NodeName}
}

// kruiseKnown returns a function that waits until it is known whether Kruise is there, and not for ever.
func kruiseKnown(availability *crr.Availability) func(ctx context.Context) {
	return func(ctx context.Context) {
		limited, cancel := context.WithTimeout(ctx, kruiseTimeout)
		defer cancel()
		if !availability.WaitUntilKnown(limited) && ctx.Err() == nil {
			ctrl.Log.Info("Going on without OpenKruise, for it is not known whether it is there", "waited", kruiseTimeout)
		}
	}
}

// kruiseChanged returns what is to be done when Kruise comes or goes, either of which may change what is to be done about
// any pod.
func kruiseChanged(c client.Reader, pods *queue[reconcile.Request]) func(ctx context.Context, available bool) {
	return func(ctx context.Context, available bool) {
		for _, request := range listPods(ctx, c) {
			pods.add(request)
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Looking at every pod again", "kruiseAvailable", available)
	}
}
