// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// A transform that returned an error or panicked would cost every pod, not only the one.
func TestATransformThatPanicsCostsOnePod(t *testing.T) {
	panicsTotal.Reset()
	transform := recovering(func(object any) any {
		if object.(*corev1.Pod).Name == "poison" {
			panic("poison")
		}
		return trimPod(object)
	})
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want any
	}{
		"poison": {
			newPod(func(p *corev1.Pod) { p.Name = "poison" }),
			plan.Stub(newPod(func(p *corev1.Pod) { p.Name = "poison" }), v1alpha1.ReasonInternalError, panicMessage),
		},
		"another": {newPod(), trimPod(newPod())},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := transform(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("transformed pod (-want +got):\n%s", diff)
			}
		})
	}
	if got := testutil.ToFloat64(panicsTotal.WithLabelValues(panicInTransform)); got != 1 {
		t.Errorf("%v panics are counted", got)
	}
	node := &corev1.Node{}
	if got, err := recovering(func(any) any { panic("poison") })(node); got != any(node) || err != nil {
		t.Errorf("a poison node becomes %v, error %v", got, err)
	}
}

func TestAStubIsReportedAndLeftAlone(t *testing.T) {
	w := newPodCase(t, 1).world
	many := newPod(mainDone)
	for range plan.MaxContainers {
		many.Spec.Containers = append(many.Spec.Containers, corev1.Container{Name: "more"})
	}
	for name, test := range map[string]struct {
		cached any
		want   v1alpha1.Reason
	}{
		"too large": {trimPod(many), v1alpha1.ReasonPodTooLarge},
		"poison":    {plan.Stub(newPod(), v1alpha1.ReasonInternalError, panicMessage), v1alpha1.ReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			stub := test.cached.(*corev1.Pod)
			if diff := cmp.Diff(stub, trimPod(stub)); diff != "" {
				t.Errorf("a stub does not stay one (-once +twice):\n%s", diff)
			}
			subject, err := w.subject(t.Context(), stub)
			if err != nil {
				t.Fatal(err)
			}
			if len(subject.resolution.Warnings) != 1 || subject.resolution.Warnings[0].Reason != test.want || !subject.concerns() {
				t.Errorf("warnings %+v", subject.resolution.Warnings)
			}
			decision := plan.Next(plan.Snapshot{Pod: stub}, noon)
			if decision.Stage != plan.StageIgnored || decision.Reason != test.want || len(decision.Actions) > 0 {
				t.Errorf("decision %+v", decision)
			}
		})
	}
}
