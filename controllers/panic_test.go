// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
)

func TestStubIsReportedAndLeftAlone(t *testing.T) {
	w := newPodCase(t, 1).reader
	many := podtest.New(podtest.MainDone)
	for range plan.MaxContainers {
		many.Spec.Containers = append(many.Spec.Containers, corev1.Container{Name: "more"})
	}
	for name, test := range map[string]struct {
		cached any
		want   v1alpha1.Reason
	}{
		"too large": {podcache.TrimPod(many), v1alpha1.ReasonPodTooLarge},
		"poison":    {plan.Stub(podtest.New(), v1alpha1.ReasonInternalError, podcache.PanicMessage), v1alpha1.ReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			stub := test.cached.(*corev1.Pod)
			if diff := cmp.Diff(stub, podcache.TrimPod(stub)); diff != "" {
				t.Errorf("a stub does not stay one (-once +twice):\n%s", diff)
			}
			resolved, err := w.resolve(t.Context(), stub)
			if err != nil {
				t.Fatal(err)
			}
			if len(resolved.resolution.Warnings) != 1 || resolved.resolution.Warnings[0].Reason != test.want || !resolved.needsAttention() {
				t.Errorf("warnings %+v", resolved.resolution.Warnings)
			}
			decision := plan.Next(plan.Snapshot{Pod: stub}, podtest.Noon)
			if decision.Stage != plan.StageIgnored || decision.Reason != test.want || len(decision.Actions) > 0 {
				t.Errorf("decision %+v", decision)
			}
		})
	}
}
