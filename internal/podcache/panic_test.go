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
		return TrimPod(object)
	})
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want any
	}{
		"poison": {
			podtest.New(func(p *corev1.Pod) { p.Name = "poison" }),
			plan.Stub(podtest.New(func(p *corev1.Pod) { p.Name = "poison" }), v1alpha1.ReasonInternalError, PanicMessage),
		},
		"another": {podtest.New(), TrimPod(podtest.New())},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := transform(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("transformed pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, TrimPod(got)); diff != "" {
				t.Errorf("pod that was transformed twice (-want +got):\n%s", diff)
			}
		})
	}
	if got := testutil.ToFloat64(Panics.WithLabelValues(PanicInTransform)); got != 1 {
		t.Errorf("%v panics are counted", got)
	}
	node := &corev1.Node{}
	if got, err := recovering(func(any) any { panic("poison") })(node); got != any(node) || err != nil {
		t.Errorf("a poison node becomes %v, error %v", got, err)
	}
}
