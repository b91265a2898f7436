// SPDX-License-Identifier: Apache-2.0

// Package panics counts and logs the panics that the operator recovers from. A panic about one pod must not stop the others.
package panics

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

// The places where a panic is recovered, as Total labels them.
const (
	InTransform = "transform"
	InReconcile = "reconcile"
	InStatus    = "status"
)

// Message is what users read about a pod on which the operator panicked. The cause is in the operator's log.
const Message = "the operator failed on this pod by a defect of its own and leaves it alone; its log has the details: please report them"

// Total counts panics by place.
var Total = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sidecar_termination_panics_total",
	Help: "Panics that were recovered, by where: transform (of a watch event), reconcile (of a pod), or status (a pod in the status of a policy). Each is a defect of the operator.",
}, []string{"where"})

func init() { metrics.Registry.MustRegister(Total) }

// logged limits the stacks in the log: a user can update a pod many times a second.
var logged = &rate.Sometimes{First: 10, Interval: time.Minute}

// Report counts the panic and logs it with the object's name.
func Report(place string, key types.NamespacedName, cause any) {
	Total.WithLabelValues(place).Inc()
	logged.Do(func() {
		ctrl.Log.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic; the operator leaves the object alone",
			"place", place, "namespace", key.Namespace, "name", key.Name, "stack", string(debug.Stack()))
	})
}
