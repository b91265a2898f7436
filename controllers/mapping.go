// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podsOfPolicy asks for the live pods that a namespaced policy selects. An update asks for those of the old and of the
// new selector.
func podsOfPolicy(pods podStores) handler.TypedEventHandler[*v1alpha1.SidecarTerminationPolicy, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, policy *v1alpha1.SidecarTerminationPolicy) []reconcile.Request {
		return podsSelectedBy(ctx, pods, policy.Namespace, &policy.Spec.PodSelector)
	})
}

// podsOfClusterPolicy asks for the live pods that a cluster policy selects by their own labels, in every namespace.
func podsOfClusterPolicy(pods podStores) handler.TypedEventHandler[*v1alpha1.ClusterSidecarTerminationPolicy, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, policy *v1alpha1.ClusterSidecarTerminationPolicy) []reconcile.Request {
		return podsSelectedBy(ctx, pods, metav1.NamespaceAll, &policy.Spec.PodSelector)
	})
}

// podsOfNode asks for the live pods on a node.
func podsOfNode(pods podStores) handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
		onNode, err := pods.LivePodsOnNode(node.Name)
		return requestsFor(ctx, onNode, err)
	})
}

// podsOfNamespace asks for the live pods of a namespace.
func podsOfNamespace(pods podStores) handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, namespace *metav1.PartialObjectMetadata) []reconcile.Request {
		inside, err := pods.LivePods(ctx, namespace.Name)
		return requestsFor(ctx, inside, err)
	})
}

func podsSelectedBy(ctx context.Context, pods podStores, namespace string, selector *metav1.LabelSelector) []reconcile.Request {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil
	}
	live, err := pods.LivePods(ctx, namespace)
	return requestsFor(ctx, slices.DeleteFunc(live, func(pod *corev1.Pod) bool { return !parsed.Matches(labels.Set(pod.Labels)) }), err)
}

// requestsFor asks for each pod. The error says that the stores could not be read, as those of pods that cannot be compared;
// a reconcile of such a pod fails of that too, and is repeated.
func requestsFor(ctx context.Context, pods []*corev1.Pod, err error) []reconcile.Request {
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Not looking at pods again")
	}
	requests := make([]reconcile.Request, 0, len(pods))
	for _, pod := range pods {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	}
	return requests
}

// nodeKindChanged passes new nodes and nodes that became ones of another kind.
func nodeKindChanged(marks plan.NodeMarks) predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
			return marks.Classify(e.ObjectOld) != marks.Classify(e.ObjectNew)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*corev1.Node]) bool { return false },
	}
}

// namespaceLabelsChanged passes namespaces whose labels changed, and new ones, which may be seen after their first pods.
func namespaceLabelsChanged() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.And(predicate.TypedLabelChangedPredicate[*metav1.PartialObjectMetadata]{},
		predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
			CreateFunc: func(e event.TypedCreateEvent[*metav1.PartialObjectMetadata]) bool { return !e.IsInInitialList },
			DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
		})
}

// tearingDown passes pods whose phase was written and that are not at their end; retained ones need no look, whoever
// touches them and however often the cache repeats itself.
func tearingDown() predicate.TypedPredicate[*corev1.Pod] {
	return predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(e event.TypedCreateEvent[*corev1.Pod]) bool { return !e.IsInInitialList || !isTornDown(e.Object) },
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return !isTornDown(e.ObjectOld) || !isTornDown(e.ObjectNew)
		},
	}
}

func isTornDown(pod *corev1.Pod) bool {
	return plan.HasTerminalPhase(pod) && !plan.AnyContainerRunning(pod)
}

// declarationChanged passes new, deleted and re-specified policies, but not those of which only the status or metadata
// changed.
func declarationChanged[policy client.Object]() predicate.TypedPredicate[policy] {
	return predicate.TypedFuncs[policy]{
		UpdateFunc: func(e event.TypedUpdateEvent[policy]) bool {
			return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				!equality.Semantic.DeepEqual(specOf(e.ObjectOld), specOf(e.ObjectNew))
		},
	}
}

// specOf returns what a policy of either kind declares.
func specOf(policy client.Object) any {
	switch p := policy.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		return p.Spec
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		return p.Spec
	}
	return nil
}

// toPolicy asks for the policy itself.
func toPolicy[policy client.Object](kind resolve.PolicyKind) handler.TypedEventHandler[policy, resolve.PolicyRef] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, p policy) []resolve.PolicyRef {
		return []resolve.PolicyRef{{Kind: kind, Namespace: p.GetNamespace(), Name: p.GetName()}}
	})
}

// policiesWithPrePull lists the policies that have images pulled. The cache fails only before it has started
// or after it has stopped; nothing is lost then.
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
