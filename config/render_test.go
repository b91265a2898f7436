// SPDX-License-Identifier: Apache-2.0

// Package config_test tests the rendered kustomizations.
package config_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

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

// byName returns the object of a kind and name.
func byName[T any](t *testing.T, rendered resources, kind, name string) T {
	t.Helper()
	matching := slices.DeleteFunc(slices.Clone(rendered), func(object unstructured.Unstructured) bool { return object.GetName() != name })
	return only[T](t, matching, kind)
}
