// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// declaration says something about container proxy, which an injector has added to the pod of a Job with container main.
type declaration struct {
	name string
	spec func(*v1alpha1.PolicySpec) // of a policy, or nil
	pod  func(*corev1.Pod)          // of the pod, or nil
}

var ofPolicies = []declaration{
	{"`sidecars: [proxy]`", sidecars("proxy"), nil},
	{"`mainContainers: [main]`", mainContainers("main"), nil},
	{"`mainContainers: [main, proxy]`", mainContainers("main", "proxy"), nil},
	{"`includeInjected: true`", func(s *v1alpha1.PolicySpec) { s.Sidecars, s.IncludeInjected = nil, true }, nil},
}

var ofPods = []declaration{
	{"annotation `sidecars: proxy`", nil, func(p *corev1.Pod) { annotated(p, "proxy") }},
	{"variables of OpenKruise", nil, func(p *corev1.Pod) { withEnv(p, terminate, "true", ignore, "false") }},
}

// The table has all pairs of declarations in a policy of a team, which sets exitCodePolicy, and in one of the platform or in the pod. The
// platform sets exitCodePolicy otherwise, and drainSeconds.
func TestPairsOfDeclarations(t *testing.T) {
	var table strings.Builder
	table.WriteString("| policy of the namespace, `exitCodePolicy: Respect` | other declaration | proxy is | `exitCodePolicy`, `drainSeconds` | `Overridden` |\n|---|---|---|---|---|\n")
	for _, first := range append([]declaration{{name: "-"}}, ofPolicies...) {
		for _, second := range slices.Concat([]declaration{{name: "-"}}, ofPolicies, ofPods) {
			pod, policies := newPod("main", "proxy"), []resolve.Policy(nil)
			if first.spec != nil {
				policies = append(policies, namespaced(t, "team", 1, spec(first.spec, func(s *v1alpha1.PolicySpec) { s.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect })))
			}
			other := second.name
			if second.spec != nil {
				other = "cluster policy, " + other
				policies = append(policies, cluster(t, "platform", 1, spec(second.spec, func(s *v1alpha1.PolicySpec) {
					s.ExitCodePolicy, s.DrainSeconds = v1alpha1.ExitCodePolicyIgnore, ptr.To[int32](5)
				})))
			}
			if second.pod != nil {
				second.pod(pod)
			}
			options := resolve.Options{Injected: resolve.Injected(pod, []string{"main"})}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", first.name, other, describe(resolve.Resolve(pod, policies, options)))
		}
	}
	known, err := os.ReadFile("testdata/pairs.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(known), table.String()) {
		t.Errorf("testdata/pairs.txt has another table; this is the current one:\n%s", table.String())
	}
}

// describe returns the last cells of a row.
func describe(r resolve.Resolution) string {
	role, settings, overridden := "main", "-", "-"
	if s := r.Enforced.Sidecar("proxy"); s != nil {
		role, settings = "sidecar", fmt.Sprintf("%s, %.0f", s.ExitCodePolicy, s.Drain.Seconds())
	}
	for _, o := range r.Overrides {
		overridden = fmt.Sprintf("%s: %s", o.Policy.Name, o.Lost)
	}
	return strings.Join([]string{role, settings, overridden}, " | ")
}
