// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The places where a panic is recovered, as panics labels them.
const (
	panicInReconcile = "reconcile"
	panicInStatus    = "status"
)

// panicMessage is what users read about a pod on which the operator panicked. The cause is in the operator's log.
const panicMessage = "the operator failed on this pod by a defect of its own and leaves it alone; its log has the details: please report them"

// panics counts panics by place.
var panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sidecar_termination_panics_total",
	Help: "Panics that were recovered, by where: reconcile (of a pod), or status (a pod in the status of a policy). Each is a defect of the operator.",
}, []string{"where"})

func init() {
	metrics.Registry.MustRegister(panics)
	for _, place := range []string{panicInReconcile, panicInStatus} {
		panics.WithLabelValues(place)
	}
}

// loggedPanics limits the stacks in the log: a user can update a pod many times a second.
var loggedPanics = &rate.Sometimes{First: 10, Interval: time.Minute}

// reportPanic counts a panic that the operator recovered from, and logs it with the object's name.
func reportPanic(place string, key types.NamespacedName, cause any) {
	panics.WithLabelValues(place).Inc()
	loggedPanics.Do(func() {
		ctrl.Log.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic; the operator leaves the object alone",
			"place", place, "namespace", key.Namespace, "name", key.Name, "stack", string(debug.Stack()))
	})
}
