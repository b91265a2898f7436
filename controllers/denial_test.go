// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
)

// denied returns the denied writes of the pod.
func (st *statesTest) denied(pod *corev1.Pod) map[v1alpha1.Mode]string {
	if state := st.known(pod); state != nil {
		return state.denied
	}
	return nil
}

// The status of policies must show a denial although the decision is the same.
func TestDenialEnqueuesPolicies(t *testing.T) {
	st, resolved := newStatesTest(t), resolvedPodOf(podtest.New(), mesh)
	for _, step := range []struct {
		name string
		done execution
		want bool
	}{
		{"the first decision", execution{}, true},
		{"the same", execution{}, false},
		{"its mark is denied", execution{denied: map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}}, true},
		{"denied again", execution{denied: map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}}, false},
		{"the mark is accepted", executionOf(marking("")), true},
	} {
		if st.record(resolved, waiting(), step.done); st.enqueued()[mesh.Ref.Name] != step.want {
			t.Errorf("%s: the policy is enqueued: %t, want %t", step.name, !step.want, step.want)
		}
	}
}

func TestDeniedWritesAreKeptUntilOneSucceeds(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(podtest.MainDone), mesh)
	denied := func(decision plan.Decision, answers map[v1alpha1.Mode]string) func() {
		return func() { st.record(resolved, decision, execution{denied: answers}) }
	}
	executed := func(decision plan.Decision) func() { return func() { st.executed(resolved, decision) } }
	both := map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no", v1alpha1.ModeImage: "never"}
	other := podtest.New(func(p *corev1.Pod) { p.UID = "0000" })
	for _, step := range []struct {
		name   string
		do     func()
		want   map[v1alpha1.Mode]string
		events int
		stuck  float64
	}{
		{"two are denied", denied(stuck(), both), both, 1, 1},
		{"denied again", denied(stuck(), both), both, 0, 1},
		{"one is accepted", executed(terminating(v1alpha1.ModePodPhase)), map[v1alpha1.Mode]string{v1alpha1.ModeImage: "never"}, 1, 0},
		{"it is in progress", executed(inProgress(v1alpha1.ModePodPhase)), map[v1alpha1.Mode]string{v1alpha1.ModeImage: "never"}, 0, 0},
		{"the other is accepted too", executed(terminating(v1alpha1.ModeImage)), nil, 1, 0},
		{"a mark is denied", denied(waiting(), map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}), map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}, 0, 0},
		{"a mark is accepted", executed(marking("")), nil, 0, 0},
	} {
		step.do()
		if diff := cmp.Diff(step.want, st.denied(resolved.Pod)); diff != "" {
			t.Errorf("%s: denied (-want +got):\n%s", step.name, diff)
		}
		if got := st.events.take(); len(got) != step.events {
			t.Errorf("%s: events %q", step.name, got)
		}
		if got := testutil.ToFloat64(stuckPods); got != step.stuck {
			t.Errorf("%s: %v pods are stuck", step.name, got)
		}
		if got := st.denied(other); got != nil {
			t.Errorf("%s: denials of another pod with the name: %v", step.name, got)
		}
	}
	if diff := cmp.Diff(map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no", v1alpha1.ModeImage: "never"}, both); diff != "" {
		t.Errorf("the argument was changed (-before +after):\n%s", diff)
	}
}
