// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// podHandler enqueues pods. Pods of the initial list wait behind all others, unless a container has ended: without one, no pod is due.
type podHandler struct {
	handler.TypedEnqueueRequestForObject[client.Object]
}

// Create implements handler.TypedEventHandler.
func (h *podHandler) Create(ctx context.Context, e event.CreateEvent, queue podQueue) {
	e.IsInInitialList = e.IsInInitialList && !e.Object.(*podcache.Pod).Ended
	h.TypedEnqueueRequestForObject.Create(ctx, e, queue)
}

// podQueue is the queue of the pod controller.
type podQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podsOfPolicy enqueues the unfinished pods that a namespaced policy selects, on an update by its old and by its new selector.
func podsOfPolicy(pods podcache.Stores) handler.TypedEventHandler[*v1alpha1.SidecarTerminationPolicy, reconcile.Request] {
	return enqueuePodsOf(func(policy *v1alpha1.SidecarTerminationPolicy) ([]*podcache.Pod, error) {
		return podsSelectedBy(pods, policy.Namespace, &policy.Spec.PodSelector)
	})
}

// podsOfClusterPolicy enqueues the unfinished pods of all namespaces whose own labels a cluster policy selects.
func podsOfClusterPolicy(pods podcache.Stores) handler.TypedEventHandler[*v1alpha1.ClusterSidecarTerminationPolicy, reconcile.Request] {
	return enqueuePodsOf(func(policy *v1alpha1.ClusterSidecarTerminationPolicy) ([]*podcache.Pod, error) {
		return podsSelectedBy(pods, metav1.NamespaceAll, &policy.Spec.PodSelector)
	})
}

// podsOfNode enqueues the unfinished pods on a node.
func podsOfNode(pods podcache.Stores) handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return enqueuePodsOf(func(node *corev1.Node) ([]*podcache.Pod, error) { return pods.PodsOnNode(node.Name) })
}

// podsOfNamespace enqueues the unfinished pods of a namespace.
func podsOfNamespace(pods podcache.Stores) handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	return enqueuePodsOf(func(namespace *metav1.PartialObjectMetadata) ([]*podcache.Pod, error) {
		return pods.Pods(namespace.Name)
	})
}

// podsSelectedBy lists the unfinished pods that the selector matches, and none for an invalid selector. It includes a pod that cannot be
// decoded, whose reconcile reports that.
func podsSelectedBy(pods podcache.Stores, namespace string, selector *metav1.LabelSelector) ([]*podcache.Pod, error) {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, nil
	}
	all, err := pods.Pods(namespace)
	return slices.DeleteFunc(all, func(cached *podcache.Pod) bool {
		pod, err := cached.Decode()
		return err == nil && !parsed.Matches(labels.Set(pod.Labels))
	}), err
}

// enqueuePodsOf enqueues the pods that an object concerns: on an update those of the old and of the new one. Objects of the initial list
// enqueue none: the controller starts with all of them in its caches, and with every pod in its queue.
func enqueuePodsOf[object client.Object](podsOf func(object) ([]*podcache.Pod, error)) handler.TypedEventHandler[object, reconcile.Request] {
	enqueue := func(ctx context.Context, o object, queue podQueue) {
		pods, err := podsOf(o)
		enqueuePods(ctx, queue, pods, err)
	}
	return handler.TypedFuncs[object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[object], queue podQueue) {
			if !e.IsInInitialList {
				enqueue(ctx, e.Object, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[object], queue podQueue) {
			enqueue(ctx, e.ObjectOld, queue)
			enqueue(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[object], queue podQueue) {
			enqueue(ctx, e.Object, queue)
		},
	}
}

// enqueuePods enqueues each pod. Pods without an ended container wait behind all others, so that one policy for many pods delays
// nobody. The error means that the stores could not be read, for example because two versions of a pod cannot be compared. A reconcile
// of that pod fails by the same error and is retried.
func enqueuePods(ctx context.Context, queue podQueue, pods []*podcache.Pod, err error) {
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the pods to enqueue")
	}
	prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	for _, pod := range pods {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
		if !ok || pod.Ended {
			queue.Add(request)
			continue
		}
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, request)
	}
}

// nodeKindChanged passes new nodes and nodes whose kind changed.
func nodeKindChanged(marks plan.NodeKindRules) predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
			return marks.Classify(e.ObjectOld) != marks.Classify(e.ObjectNew)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*corev1.Node]) bool { return false },
	}
}

// namespaceLabelsChanged passes namespaces whose labels changed, and new ones: their first pods may be seen before them.
func namespaceLabelsChanged() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.And(predicate.TypedLabelChangedPredicate[*metav1.PartialObjectMetadata]{},
		predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
			DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
		})
}

// declarationChanged passes new and deleted policies and those with a new spec, but no changes of status or metadata alone. An
// interrupted watch reports a policy that was recreated as updated.
func declarationChanged[policy client.Object]() predicate.TypedPredicate[policy] {
	return predicate.TypedFuncs[policy]{
		UpdateFunc: func(e event.TypedUpdateEvent[policy]) bool {
			return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
		},
	}
}

// toPolicy enqueues the policy itself.
func toPolicy[policy client.Object](kind resolve.PolicyKind) handler.TypedEventHandler[policy, resolve.PolicyRef] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, p policy) []resolve.PolicyRef {
		return []resolve.PolicyRef{{Kind: kind, Namespace: p.GetNamespace(), Name: p.GetName()}}
	})
}

// policiesWithPrePull lists the policies with prePull. The cache fails only before its start or after its stop, when nothing is lost.
func policiesWithPrePull(ctx context.Context, c client.Reader) []resolve.PolicyRef {
	var refs []resolve.PolicyRef
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := c.List(ctx, &namespaced, client.UnsafeDisableDeepCopy); err == nil {
		for i := range namespaced.Items {
			if policy := &namespaced.Items[i]; policy.Spec.PrePull != nil {
				refs = append(refs, resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: policy.Namespace, Name: policy.Name})
			}
		}
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := c.List(ctx, &cluster, client.UnsafeDisableDeepCopy); err == nil {
		for i := range cluster.Items {
			if policy := &cluster.Items[i]; policy.Spec.PrePull != nil {
				refs = append(refs, resolve.PolicyRef{Kind: resolve.KindCluster, Name: policy.Name})
			}
		}
	}
	return refs
}
