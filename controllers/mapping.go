// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podHandler enqueues pods. Pods of the initial list have low priority, unless their main containers may be done.
type podHandler struct {
	handler.EnqueueRequestForObject
}

// Create implements handler.EventHandler.
func (h *podHandler) Create(ctx context.Context, e event.CreateEvent, queue podQueue) {
	e.IsInInitialList = e.IsInInitialList && !e.Object.(*podcache.Pod).MayBeDone
	h.EnqueueRequestForObject.Create(ctx, e, queue)
}

// podQueue is the queue of the pod controller.
type podQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podsIn enqueues the unfinished pods of a changed object's namespace, or of all namespaces if that is empty, as for a cluster policy. They
// include pods that a policy selected before, and others, whose reconciles change nothing.
func podsIn(pods podStore, namespaceOf func(client.Object) string) handler.EventHandler {
	return enqueuePodsOf(func(object client.Object) ([]*podcache.Pod, error) { return pods.Pods(namespaceOf(object)) })
}

// podsOfNode enqueues the unfinished pods on a node.
func podsOfNode(pods podStore) handler.EventHandler {
	return enqueuePodsOf(func(node client.Object) ([]*podcache.Pod, error) { return pods.PodsOnNode(node.GetName()) })
}

// enqueuePodsOf enqueues the pods that a changed object concerns. Objects of the initial list enqueue none: the controller starts with all
// of them in its caches, and with every pod in its queue.
func enqueuePodsOf(podsOf func(client.Object) ([]*podcache.Pod, error)) handler.EventHandler {
	enqueue := func(ctx context.Context, object client.Object, queue podQueue) {
		pods, err := podsOf(object)
		enqueuePods(ctx, queue, pods, err)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue podQueue) {
			if !e.IsInInitialList {
				enqueue(ctx, e.Object, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue podQueue) { enqueue(ctx, e.ObjectNew, queue) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue podQueue) { enqueue(ctx, e.Object, queue) },
	}
}

// enqueuePods enqueues each pod, with low priority unless its main containers may be done, so that a change that concerns many pods
// delays no end. It logs the error of a list.
func enqueuePods(ctx context.Context, queue podQueue, pods []*podcache.Pod, err error) {
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the pods to enqueue")
	}
	prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	for _, pod := range pods {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
		if !ok || pod.MayBeDone {
			queue.Add(request)
			continue
		}
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, request)
	}
}

// nodeKindChanged passes new nodes and nodes whose kind changed.
func nodeKindChanged(marks plan.NodeKindRules) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return marks.Classify(e.ObjectOld.(*corev1.Node)) != marks.Classify(e.ObjectNew.(*corev1.Node))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// namespaceLabelsChanged passes namespaces whose labels changed, and new ones: their first pods may be seen before them.
func namespaceLabelsChanged() predicate.Predicate {
	return predicate.And(predicate.LabelChangedPredicate{}, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }})
}

// declarationChanged passes new and deleted policies and those with a new spec, but no changes of status or metadata alone. An
// interrupted watch reports a policy that was recreated as updated.
func declarationChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
		},
	}
}

// toPolicy enqueues the policy itself.
func toPolicy(_ context.Context, policy client.Object) []resolve.PolicyRef {
	return []resolve.PolicyRef{resolve.RefOf(policy.(v1alpha1.Policy))}
}

// forEachPolicy calls the function with each policy. The cache fails only before its start or after its stop, when nothing is lost.
func forEachPolicy(ctx context.Context, c client.Reader, do func(resolve.PolicyRef)) {
	for _, list := range []client.ObjectList{&v1alpha1.SidecarTerminationPolicyList{}, &v1alpha1.ClusterSidecarTerminationPolicyList{}} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		_ = meta.EachListItem(list, func(policy runtime.Object) error {
			do(resolve.RefOf(policy.(v1alpha1.Policy)))
			return nil
		})
	}
}
