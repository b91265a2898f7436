// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// render returns the objects of a kustomization of config.
func render(t *testing.T, directory string) []*resource.Resource {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../../config/"+directory)
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
	if difference := cmp.Diff([]string{"sidecar-termination-operator-limits", "sidecar-termination-mode-native"}, got); difference != "" {
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
