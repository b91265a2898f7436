// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// recovering returns a transform that never fails. After an error the informer would list forever
// (k8s.io/client-go tools/cache/the_real_fifo.go, addReplaceToItemsLocked), and after a panic the operator would exit.
// Instead the cache stores a stub of the pod, and any other object unchanged.
func recovering(trim func(any) any) toolscache.TransformFunc {
	return func(object any) (trimmed any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				trimmed = afterPanic(object, cause)
			}
		}()
		return trim(object), nil
	}
}

func afterPanic(object, cause any) any {
	switch object := object.(type) {
	case *corev1.Pod:
		ReportPanic(PanicInTransform, client.ObjectKeyFromObject(object), cause)
		return plan.Stub(object, v1alpha1.ReasonInternalError, PanicMessage)
	case client.Object:
		ReportPanic(PanicInTransform, client.ObjectKeyFromObject(object), cause)
	}
	return object
}
