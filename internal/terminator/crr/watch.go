// SPDX-License-Identifier: Apache-2.0

package crr

import (
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// whenFinished calls the function with the pod of a request when Kruise has become through with the request. All else
// that happens to a request shows in the pod's own status.
func whenFinished(call func(pod types.NamespacedName)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			request, ok := after.(*kruise.ContainerRecreateRequest)
			if ok && isFinished(request) && !isFinished(before) {
				call(types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName})
			}
		},
	}
}

func isFinished(object any) bool {
	request, ok := object.(*kruise.ContainerRecreateRequest)
	return ok && request.Status.CompletionTime != nil
}
