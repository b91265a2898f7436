// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// directories returns every directory with a kustomization of a kind: Kustomization or Component.
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

// kustomization reads a file. A field that kustomize does not know, or has deprecated, fails the test.
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

func TestEveryKustomizationRenders(t *testing.T) {
	for _, directory := range directories(t, types.KustomizationKind) {
		if len(render(t, directory)) == 0 {
			t.Errorf("%s renders nothing", directory)
		}
	}
}

// componentUse returns a kustomization that uses a component where it is meant to be used.
func componentUse(directory string) string {
	resources := "[CONFIG/default]"
	if strings.HasPrefix(directory, "kustomize/") {
		resources = "[CONFIG/presets/istio-proxy]"
	}
	return "resources: " + resources + "\ncomponents: [CONFIG/" + directory + "]\n"
}

func TestEveryComponentRenders(t *testing.T) {
	for _, directory := range directories(t, types.ComponentKind) {
		rendered := render(t, writeOverlay(t, componentUse(directory)))
		for _, file := range kustomization(t, filepath.Join(directory, "kustomization.yaml")).Resources {
			content, err := os.ReadFile(filepath.Join(directory, file))
			if err != nil {
				t.Fatal(err)
			}
			var added struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal(content, &added); err != nil {
				t.Fatal(err)
			}
			if !rendered.has(added.Kind, added.Metadata.Name) {
				t.Errorf("%s does not add %s %s", directory, added.Kind, added.Metadata.Name)
			}
		}
	}
}

// Components that add and those that take away must not depend on their order.
func TestComponentsCanBeCombined(t *testing.T) {
	var operators []string
	for _, directory := range directories(t, types.ComponentKind) {
		if strings.HasPrefix(directory, "components/") {
			operators = append(operators, "CONFIG/"+directory)
		}
	}
	var counts []int
	for range 2 {
		rendered := render(t, writeOverlay(t, "resources: [CONFIG/default]\ncomponents: ["+strings.Join(operators, ", ")+"]\n"))
		counts = append(counts, len(rendered))
		slices.Reverse(operators)
	}
	if counts[0] != counts[1] {
		t.Errorf("%d objects in one order of the components and %d in the other", counts[0], counts[1])
	}
}

// A file that no kustomization names is not installed, and nobody notices.
func TestEveryManifestIsUsed(t *testing.T) {
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
					t.Errorf("%s is named by no kustomization", file)
				}
			}
		}
	}
}

func (r resources) has(kind, name string) bool {
	for _, object := range r {
		if object.GetKind() == kind && object.GetName() == name {
			return true
		}
	}
	return false
}

// The kustomize in kubectl 1.32 ends with a panic where one patch deletes two objects.
func TestEachDeletionIsAPatchOfItsOwn(t *testing.T) {
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
