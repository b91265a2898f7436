// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// readPolicies returns the schema of every kind that the directory's custom resource definitions define.
func readPolicies(directory string) (document, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return document{}, err
	}
	if len(files) == 0 {
		return document{}, fmt.Errorf("%s holds no custom resource definition", directory)
	}
	policies := document{Definitions: map[string]*schema{}, Paths: map[string]pathItem{}}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return document{}, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return document{}, fmt.Errorf("%s: %w", file, err)
		}
		if err := policies.add(crd.Spec); err != nil {
			return document{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	return policies, nil
}

func (d document) add(crd apiextensionsv1.CustomResourceDefinitionSpec) error {
	for _, version := range crd.Versions {
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			return fmt.Errorf("version %s: spec.versions[].schema.openAPIV3Schema is missing", version.Name)
		}
		// Nobody patches a status with kustomize.
		spec, err := mergeSchema(version.Schema.OpenAPIV3Schema.Properties["spec"])
		if err != nil {
			return fmt.Errorf("version %s: spec: %w", version.Name, err)
		}
		if spec == nil {
			return fmt.Errorf("version %s: spec has no list that merges", version.Name)
		}
		kind := groupVersionKind{Group: crd.Group, Version: version.Name, Kind: crd.Names.Kind}
		d.Definitions[definitionName(kind)] = &schema{
			Properties: map[string]*schema{"spec": spec},
			Kinds:      []groupVersionKind{kind},
		}
		path := fmt.Sprintf("/apis/%s/%s/%s/{name}", crd.Group, version.Name, crd.Names.Plural)
		if crd.Scope == apiextensionsv1.NamespaceScoped {
			path = fmt.Sprintf("/apis/%s/%s/namespaces/{namespace}/%s/{name}", crd.Group, version.Name, crd.Names.Plural)
		}
		d.Paths[path] = pathItem{Get: operation{Kind: kind}}
	}
	return nil
}

// definitionName follows the API server: the parts of the group in reverse, version and kind.
func definitionName(kind groupVersionKind) string {
	parts := strings.Split(kind.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, kind.Version, kind.Kind), ".")
}

// mergeSchema returns the part of the schema that leads to lists that merge, or nil. kustomize reads
// x-kubernetes-patch-strategy, which only built-in kinds can have. A custom resource definition has x-kubernetes-list-type
// instead.
func mergeSchema(props apiextensionsv1.JSONSchemaProps) (*schema, error) {
	if props.Type == "array" {
		return mergeList(props)
	}
	merged := &schema{Properties: map[string]*schema{}}
	for name, property := range props.Properties {
		kept, err := mergeSchema(property)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if kept != nil {
			merged.Properties[name] = kept
		}
	}
	if len(merged.Properties) == 0 {
		return nil, nil
	}
	return merged, nil
}

func mergeList(props apiextensionsv1.JSONSchemaProps) (*schema, error) {
	if props.XListType == nil || *props.XListType == "atomic" {
		return nil, nil
	}
	list := &schema{Type: "array", Items: &schema{}, PatchStrategy: "merge"}
	if *props.XListType == "set" {
		return list, nil
	}
	if len(props.XListMapKeys) != 1 {
		return nil, errors.New("a list of type map must have one key")
	}
	list.PatchMergeKey = props.XListMapKeys[0]
	if props.Items == nil || props.Items.Schema == nil {
		return nil, errors.New("a list of type map must have items")
	}
	items, err := mergeSchema(*props.Items.Schema)
	if err != nil {
		return nil, err
	}
	list.Items = orEmpty(items)
	return list, nil
}
