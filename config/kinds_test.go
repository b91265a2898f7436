// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestInstalledKinds(t *testing.T) {
	want := apiKinds(t)
	var got []string
	for _, crd := range ofKind[apiextensionsv1.CustomResourceDefinition](t, render(t, "default"), "CustomResourceDefinition") {
		got = append(got, crd.Spec.Names.Kind)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("CRDs of %v are installed, want %v", got, want)
	}
	files, err := os.ReadDir("crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(want) {
		t.Errorf("crd/bases has %d files for %d kinds", len(files), len(want))
	}
}

func TestProjectFileListsKinds(t *testing.T) {
	content, err := os.ReadFile("../PROJECT")
	if err != nil {
		t.Fatal(err)
	}
	var project struct {
		Domain    string
		Repo      string
		Resources []struct{ Kind, Domain, Version, Path string }
	}
	if err := yaml.Unmarshal(content, &project); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, resource := range project.Resources {
		got = append(got, resource.Kind)
		if resource.Domain != v1alpha1.GroupName || resource.Version != v1alpha1.GroupVersion.Version || resource.Path != project.Repo+"/api/v1alpha1" {
			t.Errorf("%s is listed as %+v", resource.Kind, resource)
		}
	}
	if want := apiKinds(t); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("PROJECT lists %v, want %v", got, want)
	}
}

// apiKinds returns the policy kinds of the Go types, sorted.
func apiKinds(t *testing.T) []string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kinds := slices.Sorted(maps.Keys(scheme.KnownTypes(v1alpha1.GroupVersion)))
	return slices.DeleteFunc(kinds, func(kind string) bool { return !strings.HasSuffix(kind, "Policy") })
}
