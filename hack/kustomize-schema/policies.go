// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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
		content, err := json.Marshal(version.Schema.OpenAPIV3Schema.Properties["spec"])
		if err != nil {
			return fmt.Errorf("encode version %s: %w", version.Name, err)
		}
		spec := &schema{}
		if err := json.Unmarshal(content, spec); err != nil {
			return fmt.Errorf("decode version %s: %w", version.Name, err)
		}
		if err := mergeLists(spec, "spec"); err != nil {
			return fmt.Errorf("version %s: %w", version.Name, err)
		}
		if spec = (pruner{}).prune(spec); spec == nil {
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

// mergeLists sets the patch strategy of each list that merges. kustomize reads x-kubernetes-patch-strategy, which only built-in
// kinds can have. A custom resource definition has x-kubernetes-list-type instead.
func mergeLists(s *schema, path string) error {
	if s == nil {
		return nil
	}
	if s.ListType == "map" && len(s.ListMapKeys) != 1 {
		return fmt.Errorf("%s: a list of type map must have one key", path)
	}
	if s.ListType == "map" {
		s.PatchMergeKey = s.ListMapKeys[0]
	}
	if s.ListType == "map" || s.ListType == "set" {
		s.PatchStrategy = "merge"
	}
	s.ListType, s.ListMapKeys = "", nil
	for name, property := range s.Properties {
		if err := mergeLists(property, path+"."+name); err != nil {
			return err
		}
	}
	return mergeLists(s.Items, path+"[]")
}
