// SPDX-License-Identifier: Apache-2.0

// Package config_test renders the kustomizations as users do and checks what comes out.
package config_test

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// The names by which users and documents refer to the installation.
const (
	namespace  = "sidecar-termination-system"
	deployment = "sidecar-termination-controller-manager"
)

// resources are the rendered objects of one kustomization.
type resources []unstructured.Unstructured

// built keeps what the kustomizations of this directory render to, because many tests read the same ones. Nothing changes
// them while tests run.
var built = map[string][][]byte{}

// render builds the kustomization in a directory. kustomize keeps its OpenAPI schema in a global variable, so tests that
// render must not run in parallel.
func render(t *testing.T, directory string) resources {
	t.Helper()
	objects, ok := built[directory]
	if !ok {
		openapi.ResetOpenAPI()
		rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
		if err != nil {
			t.Fatalf("render %s: %v", directory, err)
		}
		for _, resource := range rendered.Resources() {
			content, err := resource.MarshalJSON()
			if err != nil {
				t.Fatalf("read %s of %s: %v", resource.CurId(), directory, err)
			}
			objects = append(objects, content)
		}
		if !filepath.IsAbs(directory) {
			built[directory] = objects
		}
	}
	rendered := make(resources, len(objects))
	for i, content := range objects {
		if err := rendered[i].UnmarshalJSON(content); err != nil {
			t.Fatalf("read object %d of %s: %v", i, directory, err)
		}
	}
	return rendered
}

// ofKind returns the objects of one kind as typed values. A field that the type does not know fails the test.
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

// only returns the one object of a kind.
func only[T any](t *testing.T, rendered resources, kind string) T {
	t.Helper()
	typed := ofKind[T](t, rendered, kind)
	if len(typed) != 1 {
		t.Fatalf("rendered %d objects of kind %s, want 1", len(typed), kind)
	}
	return typed[0]
}
