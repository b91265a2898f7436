// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestPhaseLimits covers the path from the operator's flags to the writes.
func TestPhaseLimits(t *testing.T) {
	long := func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3601) }
	for name, tc := range map[string]struct {
		use    plan.PodPhaseUse
		mode   v1alpha1.Mode
		pod    []func(*corev1.Pod)
		writes string
	}{
		"a short grace period":          {plan.PodPhaseEnabled, v1alpha1.ModeAuto, []func(*corev1.Pod){podtest.MainDone}, "PATCH pods/status"},
		"a long grace period":           {plan.PodPhaseEnabled, v1alpha1.ModeAuto, []func(*corev1.Pod){podtest.MainDone, long}, "PATCH pods"},
		"a long one with mode PodPhase": {plan.PodPhaseEnabled, v1alpha1.ModePodPhase, []func(*corev1.Pod){podtest.MainDone, long}, "PATCH pods/status"},
		"the phase as the last resort":  {plan.PodPhaseLastResort, v1alpha1.ModeAuto, []func(*corev1.Pod){podtest.MainDone}, "PATCH pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions()
			options.Capabilities.PodPhase, options.Capabilities.MaxGracePeriod = tc.use, time.Hour
			b := newBench(t, options, nil)
			b.newPolicy("mesh", mode(tc.mode, ""))
			pod := b.newPod("job-1", tc.pod...)
			b.reconcile(pod)
			b.wrote(tc.writes)
		})
	}
}
