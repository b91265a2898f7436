// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// The places where a panic is recovered, as Panics labels them.
const (
	PanicInTransform = "transform"
	PanicInReconcile = "reconcile"
	PanicInStatus    = "status"
)

// PanicMessage is what users read about a pod on which the operator panicked. The cause is in the operator's log.
const PanicMessage = "the operator failed on this pod by a defect of its own and leaves it alone; its log has the details: please report them"

// Panics counts panics by place.
var Panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sidecar_termination_panics_total",
	Help: "Panics that were recovered, by where: transform (of a watch event), reconcile (of a pod), or status (a pod in the status of a policy). Each is a defect of the operator.",
}, []string{"where"})

func init() { metrics.Registry.MustRegister(Panics) }

// loggedPanics limits the stacks in the log: a user can update a pod many times a second.
var loggedPanics = &rate.Sometimes{First: 10, Interval: time.Minute}

// ReportPanic counts a panic that the operator recovered from, and logs it with the object's name.
func ReportPanic(place string, key types.NamespacedName, cause any) {
	Panics.WithLabelValues(place).Inc()
	loggedPanics.Do(func() {
		ctrl.Log.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic; the operator leaves the object alone",
			"place", place, "namespace", key.Namespace, "name", key.Name, "stack", string(debug.Stack()))
	})
}

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
		return NewPod(plan.Stub(object, v1alpha1.ReasonInternalError, PanicMessage))
	case client.Object:
		ReportPanic(PanicInTransform, client.ObjectKeyFromObject(object), cause)
	}
	return object
}
