// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/internal/settings"
)

// No metric has a label with a pod's, namespace's or policy's name: their number must not grow with the cluster.
var (
	attemptsTotal = countedByMode("sidecar_termination_attempts_total",
		"Attempts to end the sidecars of a pod, by mode. An attempt is counted when it starts.")

	attemptFailuresTotal = countedByMode("sidecar_termination_attempt_failures_total",
		"Attempts to end the sidecars of a pod that have failed, by mode.")

	dryRunAttemptsTotal = countedByMode("sidecar_termination_dry_run_attempts_total",
		"Attempts that DryRun policies would have started, by mode. A pod is counted once.")

	fallbacksTotal = countedByMode("sidecar_termination_fallbacks_total",
		"Attempts that followed a failed one or took the place of a declared mode that cannot be used, by the mode that was used.")

	podsTerminatedTotal = countedByMode("sidecar_termination_pods_terminated_total",
		"Pods whose sidecars have ended, by the mode that was used last.")

	terminationSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sidecar_termination_duration_seconds",
		Help:    "Time from the end of a pod's last main container to the end of its sidecars, by the mode that was used last.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 21, 34, 60, 120, 300, 600},
	}, []string{"mode"})

	lateDecisionsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sidecar_termination_late_decisions_total",
		Help: "Pods that have failed although their main containers have succeeded: the outcome policy was not at work, and the kubelet was faster than the operator.",
	})

	stuckPods = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sidecar_termination_stuck_pods",
		Help: "Pods with a sidecar that no usable mode has ended or could end.",
	})
)

// countedByMode returns a counter that starts at 0 for each mode.
func countedByMode(name, help string) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"mode"})
	perMode(func(mode string) { counter.WithLabelValues(mode) })
	return counter
}

// perMode starts the series of each mode. Prometheus sees no increase in a series that begins with the first event.
func perMode(start func(mode string)) {
	for _, feature := range settings.Features() {
		if feature.Mode != "" {
			start(string(feature.Mode))
		}
	}
}

func init() {
	perMode(func(mode string) { terminationSeconds.WithLabelValues(mode) })
	metrics.Registry.MustRegister(attemptsTotal, attemptFailuresTotal, dryRunAttemptsTotal, fallbacksTotal, podsTerminatedTotal,
		terminationSeconds, lateDecisionsTotal, stuckPods)
}
