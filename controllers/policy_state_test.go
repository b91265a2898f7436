// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestStatusWriteIsDelayed(t *testing.T) {
	mesh := resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
	other := resolve.PolicyRef{Kind: resolve.KindCluster, Name: "mesh"}
	second := func(n int) time.Time { return podtest.Noon.Add(time.Duration(n) * time.Second) }
	for name, test := range map[string]struct {
		period time.Duration
		events func(*PolicyReconciler)
		want   time.Time
	}{
		"no delay":                {time.Minute, func(*PolicyReconciler) {}, time.Time{}},
		"one delay":               {time.Minute, func(r *PolicyReconciler) { r.delay(mesh, second(60)) }, second(60)},
		"a longer delay follows":  {time.Minute, func(r *PolicyReconciler) { r.delay(mesh, second(42)); r.delay(mesh, second(62)) }, second(62)},
		"a shorter delay follows": {time.Minute, func(r *PolicyReconciler) { r.delay(mesh, second(60)); r.delay(mesh, second(10)) }, second(60)},
		"no period":               {0, func(r *PolicyReconciler) { r.delay(mesh, second(60)) }, time.Time{}},
		"the policy is forgotten": {time.Minute, func(r *PolicyReconciler) { r.delay(mesh, second(60)); r.states.forget(mesh) }, time.Time{}},
		"another policy":          {time.Minute, func(r *PolicyReconciler) { r.delay(other, second(60)) }, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &PolicyReconciler{states: &policyStates{}, options: Options{Operator: settings.Operator{StatusPeriod: test.period}}}
			test.events(r)
			if got := r.states.get(mesh).notBefore; !got.Equal(test.want) {
				t.Errorf("the next write is at %s, want %s", got, test.want)
			}
		})
	}
}

func TestPullDenialIsKeptOnce(t *testing.T) {
	mesh := resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
	var states policyStates
	for _, step := range []struct {
		denial  string
		changed bool
	}{{"", false}, {"gate", true}, {"gate", false}, {"quota", true}, {"", true}, {"", false}} {
		if changed := states.setPullDenial(mesh, step.denial); changed != step.changed || states.get(mesh).pullDenial != step.denial {
			t.Errorf("denial %q: changed %t, kept %q", step.denial, changed, states.get(mesh).pullDenial)
		}
	}
	if len(states.policies) > 0 {
		t.Errorf("an empty state is kept: %v", states.policies)
	}
}
