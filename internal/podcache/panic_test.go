// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
)

// A transform that returned an error or panicked would affect every pod.
func TestPanicInTransformAffectsOnePod(t *testing.T) {
	Panics.Reset()
	transform := recovering(func(object any) any {
		if object.(*corev1.Pod).Name == "poison" {
			panic("poison")
		}
		return compactPod(object)
	})
	poison := podtest.New(func(p *corev1.Pod) { p.Name = "poison" })
	for pod, want := range map[*corev1.Pod]*Pod{
		poison:        NewPod(plan.Stub(poison, v1alpha1.ReasonInternalError, PanicMessage)),
		podtest.New(): NewPod(podtest.New()),
	} {
		got, err := transform(pod)
		if diff := cmp.Diff(any(want), got, cmp.AllowUnexported(Pod{})); diff != "" || err != nil {
			t.Errorf("%s: error %v, transformed pod (-want +got):\n%s", pod.Name, err, diff)
		}
		if diff := cmp.Diff(any(want), compactPod(got), cmp.AllowUnexported(Pod{})); diff != "" {
			t.Errorf("%s: pod that was transformed twice (-want +got):\n%s", pod.Name, diff)
		}
	}
	if got := testutil.ToFloat64(Panics.WithLabelValues(PanicInTransform)); got != 1 {
		t.Errorf("%v panics are counted", got)
	}
	node := &corev1.Node{}
	if got, err := recovering(func(any) any { panic("poison") })(node); got != any(node) || err != nil {
		t.Errorf("a poison node becomes %v, error %v", got, err)
	}
}
