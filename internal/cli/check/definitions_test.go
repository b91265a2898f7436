// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config/crd"
)

// policySchema returns the schema of the namespaced kind.
func policySchema(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	definitions, err := crd.Read()
	if err != nil {
		t.Fatal(err)
	}
	for i := range definitions {
		if definitions[i].Spec.Names.Kind == "SidecarTerminationPolicy" {
			return servedSchema(&definitions[i], v1alpha1.GroupVersion.Version)
		}
	}
	t.Fatal("the definition was not found")
	return nil
}

func TestHowADefinitionDiffersFromThatOfThisProgram(t *testing.T) {
	type properties = map[string]apiextensionsv1.JSONSchemaProps
	for name, tc := range map[string]struct {
		change       func(schema *apiextensionsv1.JSONSchemaProps, spec properties)
		older, newer []string
	}{
		"it is the same": {change: func(*apiextensionsv1.JSONSchemaProps, properties) {}},
		"it has no descriptions, no rules and other limits": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, spec properties) {
				schema.Description = ""
				sidecars := spec["sidecars"]
				sidecars.XValidations, sidecars.MaxItems = nil, nil
				spec["sidecars"] = sidecars
			},
		},
		"it lacks a field with fields": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) { delete(spec, "prePull") },
			older:  []string{"spec.prePull"},
		},
		"it lacks a field of a list": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				delete(spec["sidecars"].Items.Schema.Properties, "drainSeconds")
			},
			older: []string{"spec.sidecars[].drainSeconds"},
		},
		"it lacks the status": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, _ properties) { delete(schema.Properties, "status") },
			older:  []string{"status"},
		},
		"it lacks a value": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				mode := spec["mode"]
				mode.Enum = mode.Enum[:len(mode.Enum)-1]
				spec["mode"] = mode
			},
			older: []string{"value PodPhase of spec.mode"},
		},
		"it permits every value": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				mode := spec["mode"]
				mode.Enum = nil
				spec["mode"] = mode
			},
		},
		"it has another field and another value": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				spec["grace"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
				mode := spec["mode"]
				mode.Enum = append(mode.Enum, apiextensionsv1.JSON{Raw: []byte(`"Ask"`)})
				spec["mode"] = mode
			},
			newer: []string{"spec.grace", "value Ask of spec.mode"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, installed := policySchema(t), policySchema(t)
			tc.change(installed, installed.Properties["spec"].Properties)
			if difference := cmp.Diff(tc.older, lacking(own, installed, "")); difference != "" {
				t.Errorf("what it lacks (-want +got):\n%s", difference)
			}
			if difference := cmp.Diff(tc.newer, lacking(installed, own, "")); difference != "" {
				t.Errorf("what it has besides (-want +got):\n%s", difference)
			}
		})
	}
}

func TestOnlyAServedVersionHasASchema(t *testing.T) {
	definitions, err := crd.Read()
	if err != nil || len(definitions) != 2 {
		t.Fatalf("read %d definitions: %v", len(definitions), err)
	}
	definition := &definitions[0]
	if servedSchema(definition, "v1") != nil {
		t.Error("a version that is not there has a schema")
	}
	definition.Spec.Versions[0].Served = false
	if servedSchema(definition, v1alpha1.GroupVersion.Version) != nil {
		t.Error("a version that is not served has a schema")
	}
}
