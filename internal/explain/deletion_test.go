// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestDeletedWhileEnding(t *testing.T) {
	proxy := func(w *fixture) { w.policy(asIs, "proxy") }
	for name, tc := range map[string]struct {
		change func(w *fixture)
		after  time.Duration
		want   []string // containers of the findings
	}{
		"at once":                    {proxy, 0, []string{"proxy"}},
		"within the grace period":    {proxy, 29 * time.Second, []string{"proxy"}},
		"after the grace period":     {proxy, 30 * time.Second, nil},
		"within a long grace period": {func(w *fixture) { proxy(w); w.Pod.Pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60) }, 30 * time.Second, []string{"proxy"}},
		"no sidecar":                 {func(w *fixture) { w.Pod.Pod.Spec.Containers = w.Pod.Pod.Spec.Containers[:1] }, 0, nil},
		"mode PodPhase":              {func(w *fixture) { w.policy(mode(v1alpha1.ModePodPhase), "proxy") }, 0, []string{"proxy"}},
		"exit code that counts": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.ExitCodes = v1alpha1.ExitCodesRespect }, "proxy")
		}, 0, nil},
		"operator without the phase": {func(w *fixture) { proxy(w); w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled }, 0, nil},
		"phase as the last resort": {func(w *fixture) {
			proxy(w)
			w.operator.Resolve.Image = "quick-exit:v1"
			w.operator.Capabilities.PodPhase = plan.PodPhaseLastResort
		}, 0, nil},
		"main runs": {func(w *fixture) { proxy(w); w.runs(plan.NodeReal) }, 0, []string{"proxy"}},
		"finished pod": {func(w *fixture) {
			proxy(w)
			w.live(time.Hour, 0)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
		}, 0, nil},
		"two sidecars": {func(w *fixture) {
			w.policy(asIs, "proxy", "logs")
			w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs"})
		}, 0, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			w.Deletion = &explain.Deletion{Field: "ttlSecondsAfterFinished", After: tc.after}
			var got []string
			for _, f := range explain.Lint(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings) {
				if f.Reason != v1alpha1.ReasonDeletedWhileEnding {
					continue
				}
				if f.Severity != explain.SeverityNote || f.Hint == "" {
					t.Errorf("finding %+v", f)
				}
				got = append(got, f.Container)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestForeignFinalizer(t *testing.T) {
	const warning, note = explain.SeverityWarning, explain.SeverityNote
	proxy := func(w *fixture) { w.policy(asIs, "proxy") }
	for name, tc := range map[string]struct {
		change     func(w *fixture)
		finalizers []string
		deletion   *explain.Deletion
		want       []explain.Severity
	}{
		"no finalizer":             {proxy, nil, nil, nil},
		"finalizers of Kubernetes": {proxy, []string{batchv1.JobTrackingFinalizer, metav1.FinalizerDeleteDependents}, nil, nil},
		"foreign finalizer":        {proxy, []string{batchv1.JobTrackingFinalizer, "example.com/keep"}, nil, []explain.Severity{note}},
		"early deletion":           {proxy, []string{"example.com/keep"}, &explain.Deletion{Field: "ttlSecondsAfterFinished"}, []explain.Severity{warning}},
		"late deletion":            {proxy, []string{"example.com/keep"}, &explain.Deletion{After: time.Hour}, []explain.Severity{note}},
		"no sidecar":               {func(*fixture) {}, []string{"example.com/keep"}, nil, nil},
		"no phase": {func(w *fixture) {
			proxy(w)
			w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled
		}, []string{"example.com/keep"}, nil, nil},
		"main container running": {func(w *fixture) { proxy(w); w.runs(plan.NodeReal) }, []string{"example.com/keep"}, nil, []explain.Severity{note}},
		"finished pod": {func(w *fixture) {
			proxy(w)
			w.live(time.Hour, 0)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
		}, []string{"example.com/keep"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			w.Pod.Pod.Finalizers, w.Deletion = tc.finalizers, tc.deletion
			var got []explain.Severity
			for _, f := range explain.Lint(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings) {
				if f.Reason != v1alpha1.ReasonForeignFinalizer {
					continue
				}
				if f.Container != "proxy" || f.Hint == "" || !strings.Contains(f.Message, "finalizer example.com/keep keeps") {
					t.Errorf("finding %+v", f)
				}
				got = append(got, f.Severity)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
