// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func TestInvalidSelectorsNameTheirField(t *testing.T) {
	invalid := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Near"}}}
	namespaced, cluster := &v1alpha1.SidecarTerminationPolicy{}, &v1alpha1.ClusterSidecarTerminationPolicy{}
	namespaced.Spec.PodSelector, cluster.Spec.PodSelector = invalid, invalid
	everyPod := &v1alpha1.ClusterSidecarTerminationPolicy{Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{NamespaceSelector: &invalid}}
	for _, test := range []struct {
		policy v1alpha1.Policy
		want   string
	}{{namespaced, "spec.podSelector"}, {cluster, "spec.podSelector"}, {everyPod, "spec.namespaceSelector"}} {
		_, err := resolve.Parse(test.policy)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Near") {
			t.Errorf("%T: error %v does not name %s and the operator", test.policy, err, test.want)
		}
	}
}

func TestSelects(t *testing.T) {
	etl := metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}}
	web := metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
	parse := func(policy v1alpha1.Policy) resolve.Policy {
		parsed, err := resolve.Parse(policy)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	own := func(namespace string, pods metav1.LabelSelector) resolve.Policy {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		policy.Spec.PodSelector = pods
		return parse(policy)
	}
	everywhere := func(pods metav1.LabelSelector, namespaces *metav1.LabelSelector) resolve.Policy {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{}
		policy.Spec.PodSelector, policy.Spec.NamespaceSelector = pods, namespaces
		return parse(policy)
	}
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	test := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "test"}}
	for name, tc := range map[string]struct {
		policy             resolve.Policy
		selects, maySelect bool
	}{
		"an empty podSelector selects every pod of the namespace": {own("batch", metav1.LabelSelector{}), true, true},
		"a namespaced policy selects no pod of another namespace": {own("other", etl), false, false},
		"a namespaced policy without a namespace selects nothing": {own("", metav1.LabelSelector{}), false, false},
		"labels that match":                          {own("batch", etl), true, true},
		"labels that do not match":                   {own("batch", web), false, false},
		"no namespaceSelector: every namespace":      {everywhere(etl, nil), true, true},
		"empty namespaceSelector: every namespace":   {everywhere(etl, &metav1.LabelSelector{}), true, true},
		"namespaceSelector matches":                  {everywhere(etl, prod), true, true},
		"namespaceSelector does not match":           {everywhere(etl, test), false, true},
		"cluster policy: podSelector does not match": {everywhere(web, nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.Selects(newPod("main"), map[string]string{"env": "prod"}); got != tc.selects {
				t.Errorf("Selects() = %t", got)
			}
			if got := tc.policy.MaySelect(newPod("main")); got != tc.maySelect {
				t.Errorf("MaySelect() = %t", got)
			}
		})
	}
	if own("batch", etl).SelectsNamespaces() || !everywhere(etl, nil).SelectsNamespaces() {
		t.Error("only the cluster kind selects namespaces")
	}
}

func TestUnknownEnforcement(t *testing.T) {
	for enforcement, want := range map[v1alpha1.Enforcement]bool{
		"": false, v1alpha1.EnforcementEnforce: false, v1alpha1.EnforcementDryRun: false, "Audit": true,
	} {
		if got := resolve.UnknownEnforcement(enforcement); (got != "") != want {
			t.Errorf("UnknownEnforcement(%q) = %q", enforcement, got)
		}
	}
}
