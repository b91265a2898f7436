// SPDX-License-Identifier: Apache-2.0

// Package kustomize renders kustomizations for the local cluster and for tests.
package kustomize

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// Render returns the objects of the kustomization in a directory. kustomize keeps schemas in global variables, so two calls must not run
// in parallel.
func Render(directory string, options *krusty.Options) ([]*unstructured.Unstructured, error) {
	openapi.ResetOpenAPI()
	rendered, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", directory, err)
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
