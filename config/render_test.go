// SPDX-License-Identifier: Apache-2.0

// Package config_test tests the rendered kustomizations.
package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names of the installation that users and documents rely on.
const (
	namespace  = settings.Namespace
	deployment = settings.DeploymentName
)

// resources are the rendered objects of a kustomization.
type resources []unstructured.Unstructured

// built caches the objects of directories and of users' kustomizations, which many tests share.
var built = map[string][][]byte{}

// render builds the kustomization in a directory.
func render(tb testing.TB, directory string) resources {
	tb.Helper()
	return cached(tb, directory, directory)
}

// renderOverlay builds a user's kustomization. CONFIG stands for this directory.
func renderOverlay(t *testing.T, kustomization string) resources {
	t.Helper()
	return cached(t, kustomization, writeFiles(t, map[string]string{"kustomization.yaml": kustomization}))
}

// cached builds the kustomization in a directory unless the key is cached. kustomize has a global OpenAPI schema, so tests that
// render must not run in parallel.
func cached(tb testing.TB, key, directory string) resources {
	tb.Helper()
	if built[key] == nil {
		openapi.ResetOpenAPI()
		rendered, err := testenv.Kustomizer().Run(filesys.MakeFsOnDisk(), directory)
		if err != nil {
			tb.Fatalf("render %s: %v", directory, err)
		}
		for _, resource := range rendered.Resources() {
			content, err := resource.MarshalJSON()
			if err != nil {
				tb.Fatalf("read %s of %s: %v", resource.CurId(), directory, err)
			}
			built[key] = append(built[key], content)
		}
	}
	rendered := make(resources, len(built[key]))
	for i, content := range built[key] {
		if err := rendered[i].UnmarshalJSON(content); err != nil {
			tb.Fatalf("read object %d of %s: %v", i, directory, err)
		}
	}
	return rendered
}

// ofKind returns the objects of a kind as typed values. Unknown fields fail the test.
func ofKind[T any](t *testing.T, rendered resources, kind string) []T {
	t.Helper()
	var typed []T
	for _, object := range rendered {
		if object.GetKind() != kind {
			continue
		}
		var value T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &value, true); err != nil {
			t.Fatalf("read %s %s: %v", kind, object.GetName(), err)
		}
		typed = append(typed, value)
	}
	return typed
}

// only returns the only object of a kind.
func only[T any](t *testing.T, rendered resources, kind string) T {
	t.Helper()
	typed := ofKind[T](t, rendered, kind)
	if len(typed) != 1 {
		t.Fatalf("rendered %d objects of kind %s, want 1", len(typed), kind)
	}
	return typed[0]
}

func (r resources) has(kind, name string) bool {
	return slices.ContainsFunc(r, func(object unstructured.Unstructured) bool {
		return object.GetKind() == kind && object.GetName() == name
	})
}

// fields maps "Kind/name {JSONPath}" to the words of the values at that path, sorted.
type fields map[string]string

// requireFields requires values of rendered objects. A field that an object lacks has no words.
func requireFields(t *testing.T, rendered resources, want fields) {
	t.Helper()
	got := fields{}
	for field := range want {
		id, path, _ := strings.Cut(field, " ")
		kind, name, _ := strings.Cut(id, "/")
		i := slices.IndexFunc(rendered, func(object unstructured.Unstructured) bool {
			return object.GetKind() == kind && object.GetName() == name
		})
		if i < 0 {
			t.Errorf("no %s", id)
			continue
		}
		query, text := jsonpath.New(field).AllowMissingKeys(true), strings.Builder{}
		if err := query.Parse(path); err != nil {
			t.Fatal(err)
		}
		if err := query.Execute(&text, rendered[i].Object); err != nil {
			t.Fatal(err)
		}
		got[field] = strings.Join(slices.Sorted(strings.FieldsSeq(text.String())), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// writeFiles writes a user's files into a new directory. CONFIG in kustomization.yaml stands for this directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(directory, here)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "kustomization.yaml" {
			content = strings.ReplaceAll(content, "CONFIG", config)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

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
	var k types.Kustomization
	if err := yaml.UnmarshalStrict(readConfig(t, path), &k); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if deprecated := k.CheckDeprecatedFields(); deprecated != nil && len(*deprecated) > 0 {
		t.Errorf("%s: %v", path, *deprecated)
	}
	return k
}

// componentUse returns a kustomization with the component and resources that fit it.
func componentUse(directory string) string {
	resources := "[CONFIG/default]"
	if strings.HasPrefix(directory, "kustomize/") {
		resources = "[CONFIG/presets/istio-proxy]"
	}
	return "resources: " + resources + "\ncomponents: [CONFIG/" + directory + "]\n"
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
	for _, directory := range slices.Concat(directories(t, types.KustomizationKind), directories(t, types.ComponentKind)) {
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
