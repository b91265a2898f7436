// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// poisonous panics on one pod, as a defect in a decision would.
type poisonous struct{ policyLister }

func (p poisonous) Policies(pod *corev1.Pod, namespaceLabels map[string]string) ([]resolve.Policy, error) {
	if pod.Name == "poison" {
		panic("poison")
	}
	return p.policyLister.Policies(pod, namespaceLabels)
}

func TestPanicInReconcileAffectsOnePod(t *testing.T) {
	panics.Reset()
	b := newBench(t, nil)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
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
	b.summarise(policy)
	if b.reload(policy); policy.Status.MatchedPods != 1 {
		t.Errorf("%d pods match, want the other one", policy.Status.MatchedPods)
	}
	b.reconcileStale(other)
	b.wrote("PUT sidecarterminationpolicies/status", "PATCH pods/status")
	for _, where := range []string{panicInReconcile, panicInStatus} {
		if got := testutil.ToFloat64(panics.WithLabelValues(where)); got != 1 {
			t.Errorf("%v panics are counted in %s", got, where)
		}
	}
}
