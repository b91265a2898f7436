// SPDX-License-Identifier: Apache-2.0

// Package config_test tests the rendered kustomizations.
package config_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/kustomize/api/types"
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
var built = map[string][]*unstructured.Unstructured{}

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
		built[key] = testenv.Render(tb, directory)
	}
	rendered := make(resources, len(built[key]))
	for i, object := range built[key] {
		object.DeepCopyInto(&rendered[i])
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

// operatorWith returns a user's kustomization of the operator with components.
func operatorWith(components ...string) string {
	kustomization := "resources: [CONFIG/default]\ncomponents:\n"
	for _, component := range components {
		kustomization += "- CONFIG/components/" + component + "\n"
	}
	return kustomization
}

// withComponents renders the operator with components.
func withComponents(t *testing.T, names ...string) resources {
	t.Helper()
	return renderOverlay(t, operatorWith(names...))
}

// operatorComponents returns the names of the components of the operator.
func operatorComponents(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, directory := range directories(t, types.ComponentKind) {
		if name, ok := strings.CutPrefix(directory, "components/"); ok {
			found = append(found, name)
		}
	}
	return found
}

// combination is the operator with components: its objects by kind and name, and the arguments of its Deployment.
type combination struct {
	objects   map[string]string
	arguments []string
}

func combine(t *testing.T, components ...string) combination {
	t.Helper()
	rendered := withComponents(t, components...)
	manager := &only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers[0]
	built := combination{objects: map[string]string{}, arguments: manager.Args}
	for _, object := range rendered {
		if object.GetKind() == "Deployment" {
			unstructured.RemoveNestedField(object.Object, "spec", "template", "spec", "containers")
		}
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		built.objects[object.GetKind()+" "+object.GetName()] = string(content)
	}
	return built
}

// A component has the same effect alone, beside each other component, and beside all. So the API server accepts every combination of
// components if it accepts each of them alone.
func TestComponentsCombine(t *testing.T) {
	components := operatorComponents(t)
	base, alone, combinations := combine(t), map[string]combination{}, [][]string{components}
	for i, one := range components {
		alone[one] = combine(t, one)
		for _, other := range components[:i] {
			combinations = append(combinations, []string{one, other})
		}
	}
	for _, together := range combinations {
		want := combination{objects: maps.Clone(base.objects), arguments: slices.Clone(base.arguments)}
		for _, component := range together {
			want.arguments = append(want.arguments, alone[component].arguments[len(base.arguments):]...)
			for key, object := range alone[component].objects {
				if object != base.objects[key] {
					want.objects[key] = object
				}
			}
		}
		maps.DeleteFunc(want.objects, func(key, _ string) bool {
			return base.objects[key] != "" && slices.ContainsFunc(together, func(component string) bool { return alone[component].objects[key] == "" })
		})
		if diff := cmp.Diff(want, combine(t, together...), cmp.AllowUnexported(combination{})); diff != "" {
			t.Errorf("%v (-alone +together):\n%s", together, diff)
		}
		if _, err := settings.Parse(want.arguments[len(base.arguments):]); err != nil {
			t.Errorf("%v: %v", together, err)
		}
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
