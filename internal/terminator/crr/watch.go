// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source returns a source that asks for a pod when Kruise is through with one of the operator's requests for it. All
// else that happens to a request shows in the pod's own status. It ends when Kruise goes; while Kruise is not available
// there is none, and Source returns nil.
func (a *Availability) Source() source.Source {
	requests := a.requests.Load()
	if requests == nil {
		return nil
	}
	toPod := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, request *kruise.ContainerRecreateRequest) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}}}
	})
	return source.Kind[*kruise.ContainerRecreateRequest](requests, &kruise.ContainerRecreateRequest{}, toPod, predicate.TypedFuncs[*kruise.ContainerRecreateRequest]{
		CreateFunc: func(event.TypedCreateEvent[*kruise.ContainerRecreateRequest]) bool { return false },
		UpdateFunc: func(e event.TypedUpdateEvent[*kruise.ContainerRecreateRequest]) bool {
			return e.ObjectOld.Status.CompletionTime == nil && e.ObjectNew.Status.CompletionTime != nil
		},
		DeleteFunc: func(event.TypedDeleteEvent[*kruise.ContainerRecreateRequest]) bool { return false },
	})
}
