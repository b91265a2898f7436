// SPDX-License-Identifier: Apache-2.0

// Package kustomize renders kustomizations for the local cluster, for releases and for tests.
package kustomize

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// builtIn is the schema of kustomizations that name none.
var builtIn = openapi.GetSchemaVersion()

// Build builds the kustomization in a directory. kustomize keeps schemas in global variables, so two calls must not run in parallel.
func Build(directory string, options *krusty.Options) (resmap.ResMap, error) {
	if openapi.GetSchemaVersion() != builtIn {
		openapi.ResetOpenAPI()
	}
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", directory, err)
	}
	return built, nil
}

// Render returns the objects that Build builds.
func Render(directory string, options *krusty.Options) ([]*unstructured.Unstructured, error) {
	rendered, err := Build(directory, options)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, resource := range rendered.Resources() {
		object := &unstructured.Unstructured{}
		content, err := resource.MarshalJSON()
		if err := errors.Join(err, object.UnmarshalJSON(content)); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", resource.CurId(), directory, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
