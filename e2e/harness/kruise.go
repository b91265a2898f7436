//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KruiseGroupVersion is the API version of OpenKruise that the tests use.
var KruiseGroupVersion = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}

// Kruise returns an object of an OpenKruise kind.
func Kruise(kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(KruiseGroupVersion.WithKind(kind))
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// ToMap returns the object as unstructured content.
func ToMap(object any) map[string]any {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		panic(err)
	}
	return fields
}

// KruiseList returns an empty list of an OpenKruise kind.
func KruiseList(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(KruiseGroupVersion.WithKind(kind + "List"))
	return list
}
