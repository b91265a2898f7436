// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// poisonous panics on one pod, as a defect in a decision would.
type poisonous struct{ policyLister }

func (p poisonous) Policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error) {
	if pod.Name == "poison" {
		panic("poison")
	}
	return p.policyLister.Policies(ctx, pod)
}

func TestPanicInReconcileAffectsOnePod(t *testing.T) {
	podcache.Panics.Reset()
	b := newBench(t, testOptions(), nil)
	b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	poison, other := b.newPod("poison", podtest.MainDone), b.newPod("other", podtest.MainDone)
	b.caughtUp(poison)
	b.caughtUp(other)
	b.pods.reader.policies = poisonous{b.pods.reader.policies}

	_, err := b.pods.Reconcile(t.Context(), ctrl.Request{NamespacedName: keyOf(poison)})
	if err == nil || !strings.Contains(err.Error(), "panic: poison") {
		t.Errorf("error is %v, want the panic, so that the queue retries the pod", err)
	}
	if events := b.events.take(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning InternalError "+b.namespace+"/poison: ") {
		t.Errorf("events: %q", events)
	}
	ref := resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: b.namespace, Name: "mesh"}
	if _, err := b.policies.Reconcile(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: ref.Name}}
	if b.reload(policy); policy.Status.MatchedPods != 1 {
		t.Errorf("%d pods match, want the other one", policy.Status.MatchedPods)
	}
	b.reconcileStale(other)
	b.wrote("PUT sidecarterminationpolicies/status", "PATCH pods/status")
	for _, where := range []string{podcache.PanicInReconcile, podcache.PanicInStatus} {
		if got := testutil.ToFloat64(podcache.Panics.WithLabelValues(where)); got != 1 {
			t.Errorf("%v panics are counted in %s", got, where)
		}
	}
}

func TestPodWithTooManyContainersIsLeftAlone(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	large := b.newPod("large", func(pod *corev1.Pod) {
		for i := range plan.MaxContainers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "more-" + strings.Repeat("x", i%50) + string(rune('a'+i/50)), Image: "i"})
		}
	})
	b.change(large, podtest.MainDone)
	for range 2 {
		b.reconcile(large)
	}
	b.wrote()
	if events := b.events.take(); len(events) != 1 || !strings.Contains(events[0], "Warning PodTooLarge "+b.namespace+"/large: the pod has 130 containers") {
		t.Errorf("events: %q", events)
	}
}
