// SPDX-License-Identifier: Apache-2.0

// Package render builds kustomizations as users do.
package render

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"
)

// YAML returns what a kustomization renders to, as one stream of documents. It must not
// run in parallel with itself or with Objects: kustomize keeps schemas in global variables.
func YAML(directory string) ([]byte, error) {
	built, err := build(directory)
	if err != nil {
		return nil, err
	}
	content, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("encode what %s renders to: %w", directory, err)
	}
	return content, nil
}

// Objects returns the objects that a kustomization renders to, with components applied on
// top of it, in their order.
func Objects(directory string, components ...string) (objects []unstructured.Unstructured, err error) {
	if len(components) > 0 {
		var remove func() error
		if directory, remove, err = overlay(directory, components); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	built, err := build(directory)
	if err != nil {
		return nil, err
	}
	for _, resource := range built.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode %s of %s: %w", resource.CurId(), directory, err)
		}
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("decode %s of %s: %w", resource.CurId(), directory, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func build(directory string) (resmap.ResMap, error) {
	openapi.ResetOpenAPI()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", directory, err)
	}
	return built, nil
}

// overlay writes a temporary kustomization of the directory with the components, and
// returns where it is and what removes it.
func overlay(directory string, components []string) (target string, remove func() error, err error) {
	target, err = os.MkdirTemp("", "overlay-")
	if err != nil {
		return "", nil, fmt.Errorf("create a directory for an overlay: %w", err)
	}
	remove = func() error { return os.RemoveAll(target) }
	content, err := kustomization(target, directory, components)
	if err == nil {
		err = os.WriteFile(filepath.Join(target, "kustomization.yaml"), content, 0o600)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("write an overlay of %s: %w", directory, err), remove())
	}
	return target, remove, nil
}

func kustomization(target, directory string, components []string) ([]byte, error) {
	// kustomize refuses absolute paths.
	relative := func(path string) (string, error) {
		from, err := filepath.EvalSymlinks(target)
		if err != nil {
			return "", err
		}
		to, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		return filepath.Rel(from, to)
	}
	var paths []string
	for _, path := range append([]string{directory}, components...) {
		found, err := relative(path)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", path, err)
		}
		paths = append(paths, found)
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  paths[:1],
		"components": paths[1:],
	})
}
