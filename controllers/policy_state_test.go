// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podtest"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
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

func TestPolicyCountsPodsThatItConverted(t *testing.T) {
	namespaced := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "mesh"}}
	namespaced.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}, {Name: "logs"}}
	mesh, err := resolve.FromNamespaced(namespaced)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := resolve.FromCluster(&v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh"}, Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: namespaced.Spec.PolicySpec},
	})
	if err != nil {
		t.Fatal(err)
	}
	record := func(name, value string, change ...func(*corev1.Pod)) *corev1.Pod {
		named := func(p *corev1.Pod) {
			p.Name = name
			p.Annotations[v1alpha1.AnnotationNativeSidecars] = value
		}
		return podtest.New(append([]func(*corev1.Pod){convertedProxy, named}, change...)...)
	}
	withLogs := func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "logs"}) }
	elsewhere := func(p *corev1.Pod) { p.Namespace = "other" }
	for name, tc := range map[string]struct {
		policy resolve.Policy
		pods   []*corev1.Pod
		native int32
		other  int32 // matched
	}{
		"a converted pod":                 {mesh, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/mesh")}, 1, 0},
		"a pod with another sidecar":      {mesh, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/mesh", withLogs)}, 1, 1},
		"two pods and one of the cluster": {mesh, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/mesh"), record("b", "proxy=SidecarTerminationPolicy/mesh"), record("c", "proxy=ClusterSidecarTerminationPolicy/mesh")}, 2, 0},
		"the kind counts":                 {cluster, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/mesh"), record("b", "proxy=ClusterSidecarTerminationPolicy/mesh", elsewhere)}, 1, 0},
		"on request of another":           {mesh, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/logs"), record("b", "proxy=Environment")}, 0, 0},
		"a pod of another namespace":      {mesh, []*corev1.Pod{record("a", "proxy=SidecarTerminationPolicy/mesh", elsewhere)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newPodCase(t, 1)
			c.reader.policies = fixedPolicies{tc.policy}
			stores, unfinished := newTestStores(t)
			for _, pod := range tc.pods {
				if err := unfinished.Add(podcache.TrimPod(pod)); err != nil {
					t.Fatal(err)
				}
			}
			r := &PolicyReconciler{reader: c.reader, pods: stores, podStates: newPodStates(nil, nil), options: c.reader.options}
			r.options.Clock = clocktesting.NewFakePassiveClock(podtest.Noon)
			summary, err := r.summarize(t.Context(), tc.policy, nil)
			if err != nil {
				t.Fatal(err)
			}
			status := rollup.Summarize(rollup.Policy{Spec: tc.policy.Spec}, v1alpha1.PolicyStatus{}, summary, rollup.Tally{}, podtest.Noon)
			if status.NativePods != tc.native || status.MatchedPods != tc.other {
				t.Errorf("%d native and %d matched pods, want %d and %d", status.NativePods, status.MatchedPods, tc.native, tc.other)
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
