// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// eventSource is the name under which the operator reports events.
const eventSource = "sidecar-termination-operator"

// Setup adds both reconcilers, and what they need, to the manager, whose cache must have been made with CacheOptions.
func Setup(ctx context.Context, mgr manager.Manager, options Options) error {
	teardown, err := newTeardownCache(mgr)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, indexNodeName, nodeName); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	var pods queue[reconcile.Request]
	var policies queue[resolve.PolicyRef]
	kruise := &kruiseWatch{cache: mgr.GetCache(), pods: &pods}
	kruise.availability = crr.NewAvailability(mgr, kruise.changed)
	if err := mgr.Add(kruise.availability); err != nil {
		return fmt.Errorf("watch for OpenKruise: %w", err)
	}

	journal := newJournal(mgr.GetEventRecorder(eventSource), options.Clock, policies.add)
	podReconciler, policyReconciler := newReconcilers(mgr.GetClient(), teardown, kruise.availability, journal, options)
	if kruise.controller, err = watchPods(mgr, podReconciler, teardown, &pods); err != nil {
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
func watchPods(mgr manager.Manager, r *PodReconciler, teardown cache.Cache, queue *queue[reconcile.Request]) (controller.Controller, error) {
	c, err := controller.New("pod", mgr, controller.Options{Reconciler: r, MaxConcurrentReconciles: r.options.MaxConcurrentReconciles})
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	return c, nil
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

// kruiseWatch has the pod controller watch Kruise's requests while there are any to watch.
type kruiseWatch struct {
	availability *crr.Availability
	cache        cache.Cache
	controller   controller.Controller
	pods         *queue[reconcile.Request]
}

// changed follows Kruise's coming and going, either of which may change what is to be done about any pod.
func (k *kruiseWatch) changed(ctx context.Context, available bool) error {
	if available {
		if err := k.controller.Watch(k.availability.Source()); err != nil {
			return fmt.Errorf("watch ContainerRecreateRequests: %w", err)
		}
	}
	for _, request := range listPods(ctx, k.cache) {
		k.pods.add(request)
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Looking at every pod again", "kruiseAvailable", available)
	return nil
}
