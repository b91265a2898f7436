// SPDX-License-Identifier: Apache-2.0

package shipped

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/plan"
)

// policies returns the admission policies that an operator with the modes needs.
func policies(t *testing.T, modes plan.EnabledModes) []AdmissionPolicy {
	t.Helper()
	all, err := AdmissionPolicies(plan.Capabilities{EnabledModes: modes})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// every are the modes that need every admission policy.
var every = plan.EnabledModes{CRR: true, Image: true, PodPhase: plan.PodPhaseEnabled, PrePull: true}

func TestAllModesNeedEveryAdmissionPolicy(t *testing.T) {
	objects, err := config.AdmissionPolicies()
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string][]string{}, map[string][]string{}
	for _, object := range objects {
		want[object.GetName()] = append(want[object.GetName()], object.GetKind())
	}
	for _, policy := range policies(t, every) {
		for _, object := range policy.Objects(Installation{}) {
			got[policy.Name] = append(got[policy.Name], object.GetKind())
		}
		if kinds := got[policy.Name]; len(kinds) != 2 || kinds[1] != kinds[0]+"Binding" {
			t.Errorf("%s: kinds %q, want a policy and its binding", policy.Name, kinds)
		}
		if content, err := os.ReadFile("../../config/" + policy.File()); err != nil || strings.Count(string(content), "\n  name: "+policy.Name+"\n") != 2 {
			t.Errorf("%s: the policy and its binding are not in %s: %v", policy.Name, policy.File(), err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("admission policies (-installed +known):\n%s", diff)
	}
}

func TestNeededAdmissionPoliciesFollowModes(t *testing.T) {
	always := []string{"outcome", "phase", "marks", "operator-limits", "operator-requests"}
	for name, tc := range map[string]struct {
		modes plan.EnabledModes
		more  []string
	}{
		"none":     {plan.EnabledModes{}, nil},
		"CRR":      {plan.EnabledModes{CRR: true}, []string{"mode-crr"}},
		"Image":    {plan.EnabledModes{Image: true}, []string{"mode-image"}},
		"PodPhase": {plan.EnabledModes{PodPhase: plan.PodPhaseLastResort}, []string{"mode-pod-phase"}},
		"prePull":  {plan.EnabledModes{PrePull: true}, []string{"mode-pre-pull"}},
	} {
		var got []string
		for _, policy := range policies(t, tc.modes) {
			got = append(got, policy.Short())
		}
		if diff := cmp.Diff(slices.Concat(always, tc.more), got); diff != "" {
			t.Errorf("%s: needed (-want +got):\n%s", name, diff)
		}
	}
}

// install returns the objects of the policy as an installation has them.
func install(p AdmissionPolicy, in Installation, text func(string) string) []*unstructured.Unstructured {
	installed := p.Objects(in)
	for i := range installed {
		installed[i].Object["spec"] = mapTexts(p.objects[i].DeepCopy().Object["spec"], text)
		if _, bound := p.objects[i].Object["spec"].(map[string]any)["policyName"]; bound {
			installed[i].Object["spec"].(map[string]any)["policyName"] = in.Name(p.Name)
		}
	}
	return installed
}

func kept(text string) string { return text }

// mapTexts replaces every text in a value.
func mapTexts(value any, text func(string) string) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = mapTexts(value[key], text)
		}
	case []any:
		for i := range value {
			value[i] = mapTexts(value[i], text)
		}
	case string:
		return text(value)
	}
	return value
}

func TestNamesAreThoseOfTheChart(t *testing.T) {
	content, err := os.ReadFile("../../config/chart/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`\$names := "([^"]+)"`).FindStringSubmatch(string(content))[1]
	if diff := cmp.Diff(pattern, names.String()); diff != "" {
		t.Errorf("pattern (-chart +here):\n%s", diff)
	}
}

func TestInstallationsAreAsShipped(t *testing.T) {
	chart := func(fullname, account string) func(string) string {
		return func(text string) string {
			text = names.ReplaceAllString(text, fullname+"-${1}")
			return strings.ReplaceAll(text, fullname+"-controller-manager", account)
		}
	}
	const shippedAccount = "sidecar-termination-controller-manager"
	for name, tc := range map[string]struct {
		in   Installation
		text func(string) string
	}{
		"config/default":    {Installation{shippedAccount, "system", shippedAccount}, kept},
		"unknown":           {Installation{}, kept},
		"folded":            {Installation{}, func(text string) string { return strings.Join(strings.Fields(text), "\n ") }},
		"chart":             {Installation{"acme-controller-manager", "a", "acme-controller-manager"}, chart("acme", "acme-controller-manager")},
		"chart and account": {Installation{"acme-controller-manager", "a", "batch"}, chart("acme", "batch")},
	} {
		for _, policy := range policies(t, every) {
			if diff := cmp.Diff(Status{State: Present}, policy.Compare(tc.in, install(policy, tc.in, tc.text))); diff != "" {
				t.Errorf("%s, %s: status (-want +got):\n%s", name, policy.Name, diff)
			}
		}
	}
}

func TestStateOfAnAdmissionPolicy(t *testing.T) {
	set := func(object int, value any, fields ...string) func([]*unstructured.Unstructured) {
		return func(all []*unstructured.Unstructured) {
			if err := unstructured.SetNestedField(all[object].Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	rename := func(from, to string) func([]*unstructured.Unstructured) {
		return func(all []*unstructured.Unstructured) {
			for _, object := range all {
				object.Object["spec"] = mapTexts(object.Object["spec"], func(text string) string { return strings.ReplaceAll(text, from, to) })
			}
		}
	}
	const account = "sidecar-termination-controller-manager"
	shipped := Installation{account, "system", account}
	of := func(account string) Installation { return Installation{shipped.Deployment, "system", account} }
	nothing := func([]*unstructured.Unstructured) {}
	all := policies(t, every)
	policy := all[slices.IndexFunc(all, func(p AdmissionPolicy) bool { return p.Short() == "operator-limits" })]
	for name, tc := range map[string]struct {
		in     Installation
		change func([]*unstructured.Unstructured)
		want   Status
	}{
		"no policy":             {shipped, func(all []*unstructured.Unstructured) { all[0] = nil }, Status{State: Missing}},
		"no binding":            {shipped, func(all []*unstructured.Unstructured) { all[1] = nil }, Status{State: Missing}},
		"policy being deleted":  {shipped, set(0, "2026-03-01T12:00:00Z", "metadata", "deletionTimestamp"), Status{State: BeingDeleted}},
		"binding being deleted": {shipped, set(1, "2026-03-01T12:00:00Z", "metadata", "deletionTimestamp"), Status{State: BeingDeleted}},
		"defaults":              {shipped, set(0, "Equivalent", "spec", "matchConstraints", "matchPolicy"), Status{State: Present}},
		"ignored failures": {shipped, set(0, "Ignore", "spec", "failurePolicy"),
			Status{State: Changed, Differences: []string{"ValidatingAdmissionPolicy spec.failurePolicy"}}},
		"binding of another policy": {shipped, set(1, "other", "spec", "policyName"),
			Status{State: Changed, Differences: []string{"ValidatingAdmissionPolicyBinding spec.policyName"}}},
		"further field": {shipped, set(1, "x", "spec", "paramRef", "name"),
			Status{State: Changed, Differences: []string{"ValidatingAdmissionPolicyBinding spec.paramRef"}}},
		"other account":                        {of("sidecar"), nothing, Status{State: Changed, OtherAccount: true}},
		"other account that the pattern names": {of("batch"), rename(account, "batch"), Status{State: Present}},
		"pattern of another account": {shipped, rename(account, "batch"),
			Status{State: Changed, OtherAccount: true, Differences: []string{"ValidatingAdmissionPolicy spec.matchConditions[0].expression"}}},
		"account without the chart": {Installation{"custom", "system", "custom"}, nothing, Status{State: Changed, OtherAccount: true}},
	} {
		installed := install(policy, shipped, kept)
		tc.change(installed)
		if diff := cmp.Diff(tc.want, policy.Compare(tc.in, installed)); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", name, diff)
		}
	}
}

func TestNamesOfAnotherInstallation(t *testing.T) {
	for deployment, want := range map[string]string{
		"team-a-sidecar-termination-controller-manager":    "team-a-sidecar-termination-operator-limits",
		"acme-sidecar-termination-controller-manager-blue": "acme-sidecar-termination-operator-limits-blue",
		"sidecar-termination-controller-manager":           "sidecar-termination-operator-limits",
		"custom":                                           "sidecar-termination-operator-limits",
	} {
		if got := (Installation{Deployment: deployment}).Name("sidecar-termination-operator-limits"); got != want {
			t.Errorf("%s: got %s, want %s", deployment, got, want)
		}
	}
}
