// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// render returns the objects of a kustomization of config.
func render(t *testing.T, directory string) []*resource.Resource {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/"+directory)
	if err != nil {
		t.Fatal(err)
	}
	return rendered.Resources()
}

func TestEveryAdmissionPolicyIsChecked(t *testing.T) {
	want := map[string][]string{}
	for _, object := range render(t, "admission") {
		want[object.GetKind()] = append(want[object.GetKind()], object.GetName())
	}
	c := &checker{}
	var got []string
	for _, policy := range c.admissionPolicies() {
		got = append(got, policy.name)
	}
	slices.Sort(got)
	// A policy without a binding has no effect. Both have the same name.
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		names := want[kind]
		slices.Sort(names)
		if difference := cmp.Diff(names, got); difference != "" {
			t.Errorf("%s (-installed +checked):\n%s", kind, difference)
		}
	}
}

func TestAdmissionPoliciesOfDisabledFeatures(t *testing.T) {
	c := &checker{}
	var got []string
	for _, policy := range c.admissionPolicies() {
		if policy.needed {
			got = append(got, policy.name)
		}
	}
	if difference := cmp.Diff([]string{"sidecar-termination-operator-limits"}, got); difference != "" {
		t.Errorf("needed (-want +got):\n%s", difference)
	}
}

func TestInstallationChecksEveryKind(t *testing.T) {
	wanted := map[schema.GroupResource]bool{}
	for _, object := range render(t, "default") {
		kind := object.GetGvk()
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind})
		wanted[plural.GroupResource()] = true
	}
	asked := map[schema.GroupResource]bool{}
	for _, r := range installedKinds {
		asked[schema.GroupResource{Group: r.group, Resource: r.resource}] = true
	}
	if difference := cmp.Diff(names(wanted), names(asked)); difference != "" {
		t.Errorf("kinds (-installed +checked):\n%s", difference)
	}
}

func names(resources map[schema.GroupResource]bool) []string {
	var all []string
	for one := range resources {
		all = append(all, one.String())
	}
	slices.Sort(all)
	return all
}

func TestAdmissionPoliciesOfAnotherInstallation(t *testing.T) {
	objects := fake.NewClientBuilder()
	for _, name := range []string{
		"team-a-sidecar-termination-operator-limits", "acme-sidecar-termination-operator-limits-blue",
	} {
		objects.WithObjects(
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		)
	}
	cluster := objects.Build()
	for deployment, want := range map[string]outcome{
		"team-a-sidecar-termination-controller-manager":    outcomeOK,
		"acme-sidecar-termination-controller-manager-blue": outcomeOK,
		"acme-sidecar-termination-controller-manager-red":  outcomeWarning,
		"sidecar-termination-controller-manager":           outcomeWarning,
		"custom":                                           outcomeWarning,
	} {
		c := &checker{client: cluster, deploymentName: deployment}
		if err := c.admission(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []outcome
		for _, check := range c.checks {
			got = append(got, check.Outcome)
		}
		if difference := cmp.Diff([]outcome{want}, got); difference != "" {
			t.Errorf("%s (-want +got):\n%s", deployment, difference)
		}
	}
}
