// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, container string
		want               bool
	}{
		{"proxy", "proxy", true},
		{"csql-*", "csql-orders", true},
		{"csql-*", "csql-", true},
		{"csql-*", "csql", false},
		{"*-proxy", "istio-proxy", true},
		{"*-proxy", "istio-proxy-2", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"ab*ba", "aba", false},
		{"a**c", "abc", true},
	} {
		if got := resolve.Matches(test.pattern, test.container); got != test.want {
			t.Errorf("%s matches %s: %t", test.pattern, test.container, got)
		}
	}
}

// FuzzMatches compares Matches with a regular expression.
func FuzzMatches(f *testing.F) {
	f.Add("a*b*c", "aabbcc")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, container string) {
		expression := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.ToValidUTF8(pattern, "")), `\*`, ".*") + "$"
		want := regexp.MustCompile(expression).MatchString(strings.ToValidUTF8(container, ""))
		if got := resolve.Matches(strings.ToValidUTF8(pattern, ""), strings.ToValidUTF8(container, "")); got != want {
			t.Errorf("%q matches %q: %t, want %t", pattern, container, got, want)
		}
	})
}

// The order of the entries does not decide which one of several counts.
func TestEntryOfContainer(t *testing.T) {
	entry := func(name, image string) v1alpha1.Sidecar {
		return v1alpha1.Sidecar{Name: name, TerminationSettings: v1alpha1.TerminationSettings{Image: image}}
	}
	s := spec(func(s *v1alpha1.PolicySpec) {
		s.Sidecars = []v1alpha1.Sidecar{entry("*", "any:v1"), entry("*y", "short:v1"), entry("p*x*", "first:v1"), entry("p*xy", "later:v1"), entry("proxy", "name:v1")}
	})
	for range 2 {
		for container, image := range map[string]string{"proxy": "name:v1", "prxy": "first:v1", "py": "short:v1", "logs": "any:v1"} {
			view := resolve.Resolve(newPod("main", container), []resolve.Policy{namespaced(t, "mesh", 1, s)}, resolve.Options{}).Enforced
			if got := view.Sidecar(container).Image; got != image {
				t.Errorf("%s has image %s, want %s", container, got, image)
			}
		}
		reversed(&s)
	}
}

// An older definition or operator drops fields that it does not know.
func TestDroppedFieldAddsNoSidecar(t *testing.T) {
	pod := newPod("main", "proxy", "injected")
	options := resolve.Options{Injected: []string{"injected"}}
	both := declaration{name: "sidecars and includeInjected", spec: func(s *v1alpha1.PolicySpec) { s.IncludeInjected = true }}
	for _, d := range append(slices.Clone(ofPolicies), both) {
		policy := namespaced(t, "team", 1, spec(d.spec))
		before := resolve.Resolve(pod, []resolve.Policy{policy}, options).Enforced
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for field := range fields {
			without := maps.Clone(fields)
			delete(without, field)
			policy.Spec = &v1alpha1.PolicySpec{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(without, policy.Spec); err != nil {
				t.Fatal(err)
			}
			for _, sidecar := range resolve.Resolve(pod, []resolve.Policy{policy}, options).Enforced.Sidecars {
				if before.Sidecar(sidecar.Container) == nil {
					t.Errorf("%s without %s: %s is a sidecar", d.name, field, sidecar.Container)
				}
			}
		}
	}
}

func TestDeclaringPolicy(t *testing.T) {
	pod, optOut := newPod("main", "proxy", "logs"), optedOut(newPod("main", "proxy"))
	mesh, everywhere := namespaced(t, "mesh", 1, spec()), cluster(t, "everywhere", 2, spec(sidecars("proxy", "logs")))
	dryRun := namespaced(t, "dry-run", 3, spec(sidecars("main"), func(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun }))
	mains := namespaced(t, "mains", 1, spec(mainContainers("etl")))
	all := []resolve.Policy{everywhere, dryRun, mesh, mains}
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		container string
		want      *resolve.PolicyRef
	}{
		"the first by precedence":     {pod, "proxy", &mesh.Ref},
		"the first that says it":      {pod, "logs", &everywhere.Ref},
		"a DryRun policy decides not": {pod, "main", nil},
		"the pod has opted out":       {optOut, "proxy", nil},
		"a main container":            {newPod("etl", "app"), "etl", &mains.Ref},
	} {
		t.Run(name, func(t *testing.T) {
			view := resolve.Resolve(test.pod, all, resolve.Options{}).Enforced
			var got *resolve.PolicyRef
			if policy, declared := view.MainPolicies[test.container]; declared {
				got = &policy
			} else if sidecar := view.Sidecar(test.container); sidecar != nil {
				got = sidecar.Policy
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
	byAnnotation := resolve.Resolve(annotated(newPod("main", "proxy"), "proxy"), nil, resolve.Options{}).Enforced.Sidecar("proxy")
	if byAnnotation.DeclaredBy != resolve.SourceAnnotation || byAnnotation.Policy != nil {
		t.Errorf("a sidecar of the annotation is declared by %s, policy %v", byAnnotation.DeclaredBy, byAnnotation.Policy)
	}
	if !everywhere.GivesRoles(pod, resolve.Options{}) || everywhere.GivesRoles(newPod("main", "app"), resolve.Options{}) {
		t.Error("GivesRoles: want true for a pod with one of the sidecars only")
	}
}

// A policy loses the fields that it sets otherwise than one of higher precedence.
func TestLostFields(t *testing.T) {
	for field, set := range map[string][2]func(*v1alpha1.PolicySpec){
		"mode":         {func(s *v1alpha1.PolicySpec) { s.Mode = v1alpha1.ModeCRR }, func(s *v1alpha1.PolicySpec) { s.Mode = v1alpha1.ModeImage }},
		"image":        {func(s *v1alpha1.PolicySpec) { s.Image = "a" }, func(s *v1alpha1.PolicySpec) { s.Image = "b" }},
		"drainSeconds": {func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To[int32](1) }, func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To[int32](2) }},
		"terminationDeadlineSeconds": {
			func(s *v1alpha1.PolicySpec) { s.TerminationDeadlineSeconds = ptr.To[int32](3) },
			func(s *v1alpha1.PolicySpec) { s.TerminationDeadlineSeconds = ptr.To[int32](4) },
		},
		"fallback": {func(s *v1alpha1.PolicySpec) { s.Fallback = "Enabled" }, func(s *v1alpha1.PolicySpec) { s.Fallback = "Disabled" }},
	} {
		for i, want := range [][]string{nil, {field}} {
			policies := []resolve.Policy{namespaced(t, "first", 1, spec(set[0])), cluster(t, "second", 1, spec(set[i]))}
			var lost []string
			for _, override := range resolve.Resolve(newPod("main", "proxy"), policies, resolve.Options{}).Overrides {
				lost = append(lost, override.Lost)
			}
			if diff := cmp.Diff(want, lost); diff != "" {
				t.Errorf("%s (-want +got):\n%s", field, diff)
			}
		}
	}
}

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
