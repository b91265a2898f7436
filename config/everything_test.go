// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// directories returns every directory with a file of the kind: Kustomization or Component.
func directories(t *testing.T, kind string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "kustomization.yaml" {
			return err
		}
		if kustomization(t, path).Kind == kind {
			found = append(found, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// kustomization reads a file. Unknown and deprecated fields fail the test.
func kustomization(t *testing.T, path string) types.Kustomization {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var k types.Kustomization
	if err := yaml.UnmarshalStrict(content, &k); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if deprecated := k.CheckDeprecatedFields(); deprecated != nil && len(*deprecated) > 0 {
		t.Errorf("%s: %v", path, *deprecated)
	}
	return k
}

func TestKustomizationsRender(t *testing.T) {
	for _, directory := range directories(t, types.KustomizationKind) {
		if len(render(t, directory)) == 0 {
			t.Errorf("%s renders nothing", directory)
		}
	}
}

// componentUse returns a kustomization with the component and resources that fit it.
func componentUse(directory string) string {
	resources := "[CONFIG/default]"
	if strings.HasPrefix(directory, "kustomize/") {
		resources = "[CONFIG/presets/istio-proxy]"
	}
	return "resources: " + resources + "\ncomponents: [CONFIG/" + directory + "]\n"
}

func TestComponentsRender(t *testing.T) {
	for _, directory := range directories(t, types.ComponentKind) {
		rendered := renderOverlay(t, componentUse(directory))
		for _, file := range kustomization(t, filepath.Join(directory, "kustomization.yaml")).Resources {
			content, err := os.ReadFile(filepath.Join(directory, file))
			if err != nil {
				t.Fatal(err)
			}
			type object struct {
				Kind     string
				Metadata struct{ Name string }
			}
			var added struct {
				object `json:",inline"`
				Items  []object
			}
			if err := yaml.Unmarshal(content, &added); err != nil {
				t.Fatal(err)
			}
			if added.Kind != "List" {
				added.Items = []object{added.object}
			}
			for _, one := range added.Items {
				if !rendered.has(one.Kind, one.Metadata.Name) {
					t.Errorf("%s does not add %s %s", directory, one.Kind, one.Metadata.Name)
				}
			}
		}
	}
}

func TestComponentsCombineInAnyOrder(t *testing.T) {
	var operators []string
	for _, directory := range directories(t, types.ComponentKind) {
		if strings.HasPrefix(directory, "components/") {
			operators = append(operators, "CONFIG/"+directory)
		}
	}
	var counts []int
	for range 2 {
		rendered := renderOverlay(t, "resources: [CONFIG/default]\ncomponents: ["+strings.Join(operators, ", ")+"]\n")
		counts = append(counts, len(rendered))
		slices.Reverse(operators)
	}
	if counts[0] != counts[1] {
		t.Errorf("%d objects in one order of components, %d in the reverse order", counts[0], counts[1])
	}
}

func TestManifestsAreReferenced(t *testing.T) {
	for _, kind := range []string{types.KustomizationKind, types.ComponentKind} {
		for _, directory := range directories(t, kind) {
			k := kustomization(t, filepath.Join(directory, "kustomization.yaml"))
			used := slices.Concat(k.Resources, k.Configurations, []string{"kustomization.yaml"})
			for _, patch := range k.Patches {
				used = append(used, patch.Path)
			}
			files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if !slices.Contains(used, filepath.Base(file)) {
					t.Errorf("no kustomization references %s", file)
				}
			}
		}
	}
}

func (r resources) has(kind, name string) bool {
	return slices.ContainsFunc(r, func(object unstructured.Unstructured) bool {
		return object.GetKind() == kind && object.GetName() == name
	})
}

// The kustomize of kubectl 1.32 panics if one patch deletes two objects.
func TestPatchesDeleteOneObject(t *testing.T) {
	for _, kind := range []string{types.KustomizationKind, types.ComponentKind} {
		for _, directory := range directories(t, kind) {
			for _, patch := range kustomization(t, filepath.Join(directory, "kustomization.yaml")).Patches {
				content := []byte(patch.Patch)
				if patch.Path != "" {
					var err error
					if content, err = os.ReadFile(filepath.Join(directory, patch.Path)); err != nil {
						t.Fatal(err)
					}
				}
				if count := strings.Count(string(content), "$patch: delete"); count > 1 {
					t.Errorf("%s: patch %s deletes %d objects", directory, patch.Path, count)
				}
			}
		}
	}
}
