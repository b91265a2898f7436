// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// schema is the part of an OpenAPI schema that decides how kustomize merges a patch.
type schema struct {
	Ref           string             `json:"$ref"`
	Properties    map[string]*schema `json:"properties"`
	Items         *schema            `json:"items"`
	PatchStrategy string             `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey string             `json:"x-kubernetes-patch-merge-key"`
	ListType      string             `json:"x-kubernetes-list-type"`
	ListMapKeys   []string           `json:"x-kubernetes-list-map-keys"`
}

type schemas map[string]*schema

// mergingLists returns, by path, the key by which each list in s merges. kustomize replaces other lists as a whole. CRDs have
// x-kubernetes-list-type in place of a patch strategy.
func (all schemas) mergingLists(s *schema, path string, isCRD bool, above ...string) map[string]string {
	found := map[string]string{}
	if s == nil {
		return found
	}
	if name := strings.TrimPrefix(s.Ref, "#/definitions/"); name != "" {
		if all[name] == nil || slices.Contains(above, name) {
			return found
		}
		return all.mergingLists(all[name], path, isCRD, append(slices.Clone(above), name)...)
	}
	for name, property := range s.Properties {
		maps.Copy(found, all.mergingLists(property, path+"."+name, isCRD, above...))
	}
	switch {
	case s.Items == nil:
		return found
	case isCRD && s.ListType == "map":
		found[path] = "merge " + strings.Join(s.ListMapKeys, ",")
	case isCRD && s.ListType == "set", s.PatchStrategy != "":
		found[path] = "merge " + s.PatchMergeKey
	default:
		return found
	}
	maps.Copy(found, all.mergingLists(s.Items, path+"[]", isCRD, above...))
	return found
}

// requireMergingLists requires that a file of the component merges the lists of a definition by the same keys.
func requireMergingLists(t *testing.T, file, definition string, want map[string]string) {
	t.Helper()
	shipped := decode[struct{ Definitions schemas }](t, readConfig(t, "kustomize/component/"+file)).Definitions
	if got := shipped.mergingLists(shipped[definition], "", false); !maps.Equal(got, want) {
		t.Errorf("%s merges the lists of %s as %v, want %v", file, definition, got, want)
	}
}

func TestSchemasMergeListsOfPolicies(t *testing.T) {
	for _, crd := range ofKind[apiextensionsv1.CustomResourceDefinition](t, render(t, "crd"), "CustomResourceDefinition") {
		content, err := json.Marshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
		if err != nil {
			t.Fatal(err)
		}
		want := schemas{}.mergingLists(decode[*schema](t, content), ".spec", true)
		if want[".spec.sidecars"] != "merge name" {
			t.Fatalf("%s merges %v", crd.Name, want)
		}
		for _, file := range []string{"schema.json", "policies.json"} {
			requireMergingLists(t, file, "dev.sidecartermination."+crd.Spec.Versions[0].Name+"."+crd.Spec.Names.Kind, want)
		}
	}
}

// The component's schema replaces kustomize's own. A patch would replace a list that it lacks, and containers would be lost.
func TestSchemaMergesListsOfBuiltInKinds(t *testing.T) {
	openapi.ResetOpenAPI()
	content, err := json.Marshal(openapi.Schema().Definitions)
	if err != nil {
		t.Fatal(err)
	}
	builtin := decode[schemas](t, content)
	for name, definition := range builtin {
		requireMergingLists(t, "schema.json", name, builtin.mergingLists(definition, "", false))
	}
}

func readConfig(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	return value
}
