// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
)

// policyDefinition returns the CRD of the namespaced kind.
func policyDefinition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := config.Definitions()
	i := slices.IndexFunc(definitions, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return d.Spec.Names.Kind == "SidecarTerminationPolicy"
	})
	if err != nil || i < 0 {
		t.Fatalf("CRD not found: %v", err)
	}
	return &definitions[i]
}

func TestMissingFields(t *testing.T) {
	type properties = map[string]apiextensionsv1.JSONSchemaProps
	for name, tc := range map[string]struct {
		change       func(schema *apiextensionsv1.JSONSchemaProps, spec properties)
		older, newer []string
	}{
		"same": {change: func(*apiextensionsv1.JSONSchemaProps, properties) {}},
		"other descriptions, rules and limits": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, spec properties) {
				schema.Description = ""
				sidecars := spec["sidecars"]
				sidecars.XValidations, sidecars.MaxItems = nil, nil
				spec["sidecars"] = sidecars
			},
		},
		"missing object": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) { delete(spec, "prePull") },
			older:  []string{"spec.prePull"},
		},
		"missing field of a list": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				delete(spec["sidecars"].Items.Schema.Properties, "drainSeconds")
			},
			older: []string{"spec.sidecars[].drainSeconds"},
		},
		"missing status": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, _ properties) { delete(schema.Properties, "status") },
			older:  []string{"status"},
		},
		"missing value": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				mode := spec["mode"]
				mode.Enum = mode.Enum[:len(mode.Enum)-1]
				spec["mode"] = mode
			},
			older: []string{"value PodPhase of spec.mode"},
		},
		"every value allowed": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				mode := spec["mode"]
				mode.Enum = nil
				spec["mode"] = mode
			},
		},
		"extra field and value": {
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
			version := v1alpha1.GroupVersion.Version
			own, installed := servedSchema(policyDefinition(t), version), servedSchema(policyDefinition(t), version)
			tc.change(installed, installed.Properties["spec"].Properties)
			if difference := cmp.Diff(tc.older, missingFields(own, installed, "")); difference != "" {
				t.Errorf("missing (-want +got):\n%s", difference)
			}
			if difference := cmp.Diff(tc.newer, missingFields(installed, own, "")); difference != "" {
				t.Errorf("extra (-want +got):\n%s", difference)
			}
		})
	}
}

func TestSchemaOfServedVersionsOnly(t *testing.T) {
	definition := policyDefinition(t)
	if servedSchema(definition, "v1") != nil {
		t.Error("an unknown version has a schema")
	}
	definition.Spec.Versions[0].Served = false
	if servedSchema(definition, v1alpha1.GroupVersion.Version) != nil {
		t.Error("an unserved version has a schema")
	}
}
