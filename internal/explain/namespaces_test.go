// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestPodOfAnotherNamespaceIsIgnored(t *testing.T) {
	w := newFixture()
	w.operator.WatchNamespaces = []string{"etl", "web"}
	w.live(time.Hour, 0)
	report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
	const want = "the operator does not watch namespace batch, but only etl, web"
	if report.Stage != plan.StageIgnored || report.Reason != v1alpha1.ReasonNamespaceNotWatched || report.Message != want {
		t.Errorf("got %s %s: %s", report.Stage, report.Reason, report.Message)
	}
}

func TestMethodsWithoutOpenKruise(t *testing.T) {
	w := newFixture()
	w.operator.WatchNamespaces, w.operator.Capabilities.NamespacesOnly, w.cluster.Kruise = []string{"batch"}, true, nil
	w.operator.NodeKindRules.All = plan.NodeReal
	w.policy(asIs, "proxy")
	methods := explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers[1].Settings.Methods
	if len(methods) != 1 || methods[0].NodeType != "real node" || *methods[0].OpenKruise {
		t.Errorf("got %+v", methods)
	}
}

func TestPoliciesThatAreNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		watched   []string
		namespace string
		want      string
	}{
		"the whole cluster":    {nil, "", ""},
		"a watched namespace":  {[]string{"batch"}, "batch", ""},
		"another namespace":    {[]string{"batch"}, "etl", "the operator does not watch namespace etl, but only batch"},
		"a cluster policy":     {[]string{"batch"}, "", "the operator runs with --watch-namespaces and reads no cluster policies"},
		"very many namespaces": {strings.Split("a,b,c,d,e,f,g", ","), "etl", "the operator does not watch namespace etl, but only a, b, c, d, e and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := explain.Policy{Ref: resolve.PolicyRef{Namespace: tc.namespace}, Spec: &v1alpha1.PolicySpec{}}
			got := ""
			for _, found := range explain.DescribePolicy(policy, nil, settings.Decisions{WatchNamespaces: tc.watched}).Findings {
				if found.Reason == v1alpha1.ReasonNamespaceNotWatched {
					got += found.Message
				}
			}
			if difference := cmp.Diff(tc.want, got); difference != "" {
				t.Errorf("findings (-want +got):\n%s", difference)
			}
		})
	}
}
