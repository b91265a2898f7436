// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/openapi"
)

const (
	crds      = "../../config/crd/bases"
	component = "../../config/kustomize/component"
)

func TestTheFilesAreThoseThatAreGenerated(t *testing.T) {
	files, err := generate(crds)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(component, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not current: run make generate", name)
		}
	}
}

// The shipped schema takes the place of the built-in one. A list that it forgets is replaced by a patch where users expect
// it to be merged: containers are lost without a word.
func TestBuiltInKindsMergeAsTheyDoWithoutUs(t *testing.T) {
	openapi.ResetOpenAPI()
	full, err := json.Marshal(openapi.Schema().Definitions)
	if err != nil {
		t.Fatal(err)
	}
	var want, got document
	if err := json.Unmarshal(full, &want.Definitions); err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join(component, schemaFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(shipped, &got); err != nil {
		t.Fatal(err)
	}
	// The shipped schema has no values of maps.
	for name, definition := range openapi.Schema().Definitions {
		for property, schema := range definition.Properties {
			if schema.AdditionalProperties == nil || schema.AdditionalProperties.Schema == nil {
				continue
			}
			values := schema.AdditionalProperties.Schema
			_, merges := values.Extensions["x-kubernetes-patch-strategy"]
			if reference := strings.TrimPrefix(values.Ref.String(), refPrefix); merges || got.Definitions[reference] != nil {
				t.Errorf("the values of %s.%s lead to lists that merge", name, property)
			}
		}
	}
	wanted, lists := mergingLists(want), mergingLists(got)
	for _, path := range []string{"apps/v1 Deployment.spec.template.spec.containers[].ports", "batch/v1 CronJob.spec.jobTemplate.spec.template.spec.containers[].env"} {
		if wanted[path] == "" {
			t.Fatalf("the walk has missed %s", path)
		}
	}
	for path, how := range wanted {
		if lists[path] != how {
			t.Errorf("%s merges by %q, want %q", path, lists[path], how)
		}
		delete(lists, path)
	}
	for path := range lists {
		if !strings.HasPrefix(path, "sidecartermination.dev/") {
			t.Errorf("%s merges only here", path)
		}
	}
}

// mergingLists returns, by kind and path, how each list merges.
func mergingLists(d document) map[string]string {
	lists := map[string]string{}
	for _, definition := range d.Definitions {
		for _, kind := range definition.Kinds {
			d.walk(definition, fmt.Sprintf("%s/%s %s", kind.Group, kind.Version, kind.Kind), nil, lists)
		}
	}
	return lists
}

func (d document) walk(s *schema, path string, above []string, lists map[string]string) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, refPrefix)
		// A definition within itself says nothing new.
		if !slices.Contains(above, name) {
			d.walk(d.Definitions[name], path, append(slices.Clone(above), name), lists)
		}
		return
	}
	if s.Type == "array" {
		if s.PatchStrategy != "" {
			lists[path] = fmt.Sprint(s.PatchStrategy, s.PatchMergeKey, s.ListMapKeys)
			d.walk(s.Items, path+"[]", above, lists)
		}
		return
	}
	for name, property := range s.Properties {
		d.walk(property, path+"."+name, above, lists)
	}
}

func TestPoliciesMergeByTheKeysOfTheirDefinitions(t *testing.T) {
	policies, err := readPolicies(crds)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"sidecartermination.dev/v1alpha1 SidecarTerminationPolicy.spec.sidecars":                   "mergename[]",
		"sidecartermination.dev/v1alpha1 SidecarTerminationPolicy.spec.mainContainers":             "merge[]",
		"sidecartermination.dev/v1alpha1 SidecarTerminationPolicy.spec.prePull.pullSecrets":        "merge[]",
		"sidecartermination.dev/v1alpha1 ClusterSidecarTerminationPolicy.spec.sidecars":            "mergename[]",
		"sidecartermination.dev/v1alpha1 ClusterSidecarTerminationPolicy.spec.mainContainers":      "merge[]",
		"sidecartermination.dev/v1alpha1 ClusterSidecarTerminationPolicy.spec.prePull.pullSecrets": "merge[]",
	}
	if got := mergingLists(policies); !maps.Equal(got, want) {
		t.Errorf("lists merge so: %v, want %v", got, want)
	}
}

func TestABadDefinitionIsNamed(t *testing.T) {
	const start = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
    - name: v1
`
	for name, tc := range map[string]struct{ content, want string }{
		"not YAML":         {"kind: [", "things.yaml"},
		"unknown field":    {"kind: CustomResourceDefinition\nspecs: {}", `things.yaml: error unmarshaling JSON: while decoding JSON: json: unknown field "specs"`},
		"no schema":        {start, "things.yaml: version v1: spec.versions[].schema.openAPIV3Schema is missing"},
		"nothing to merge": {start + "      schema: {openAPIV3Schema: {properties: {spec: {type: object}}}}", "things.yaml: version v1: spec has no list that merges"},
		"two keys": {
			start + "      schema: {openAPIV3Schema: {properties: {spec: {type: object, properties: {ports: " +
				"{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port, protocol]}}}}}}",
			"things.yaml: version v1: spec.ports: a list of type map must have one key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, "things.yaml"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := run(directory, t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want it to name %s", err, tc.want)
			}
		})
	}
	if err := run(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no custom resource definition") {
		t.Errorf("an empty directory: got error %v", err)
	}
}
