// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

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

func TestDefinitionDifferences(t *testing.T) {
	type properties = map[string]apiextensionsv1.JSONSchemaProps
	for name, tc := range map[string]struct {
		change               func(schema *apiextensionsv1.JSONSchemaProps, spec properties)
		older, newer, weaker []string
	}{
		"same": {change: func(*apiextensionsv1.JSONSchemaProps, properties) {}},
		"other descriptions and messages": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, spec properties) {
				schema.Description = ""
				for i := range schema.Properties["spec"].XValidations {
					schema.Properties["spec"].XValidations[i].Message = "no"
				}
			},
		},
		"stricter": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				sidecars := spec["sidecars"]
				sidecars.MaxItems, sidecars.MinItems = ptr.To[int64](3), ptr.To[int64](2)
				sidecars.XValidations = append(sidecars.XValidations, apiextensionsv1.ValidationRule{Rule: "false"})
				spec["sidecars"] = sidecars
			},
		},
		"no rules": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, _ properties) {
				spec := schema.Properties["spec"]
				spec.XValidations = nil
				schema.Properties["spec"] = spec
			},
			weaker: []string{"spec.x-kubernetes-validations"},
		},
		"one rule less": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, _ properties) {
				spec := schema.Properties["spec"]
				spec.XValidations = spec.XValidations[1:]
				schema.Properties["spec"] = spec
			},
			weaker: []string{"spec.x-kubernetes-validations"},
		},
		"higher and missing limits": {
			change: func(_ *apiextensionsv1.JSONSchemaProps, spec properties) {
				sidecars, image := spec["sidecars"], spec["image"]
				sidecars.MaxItems, image.MaxLength = ptr.To[int64](1000), nil
				spec["sidecars"], spec["image"] = sidecars, image
			},
			weaker: []string{"spec.image.maxLength", "spec.sidecars.maxItems"},
		},
		"unknown fields kept": {
			change: func(schema *apiextensionsv1.JSONSchemaProps, _ properties) {
				spec := schema.Properties["spec"]
				spec.XPreserveUnknownFields = ptr.To(true)
				schema.Properties["spec"] = spec
			},
			weaker: []string{"spec.x-kubernetes-preserve-unknown-fields"},
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
			weaker: []string{"spec.mode.enum"},
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
			installed := policyDefinition(t)
			schema := servedSchema(installed, v1alpha1.GroupVersion.Version)
			tc.change(schema, schema.Properties["spec"].Properties)
			got := compareDefinitions(policyDefinition(t), stored(installed))
			want := differences{tc.older, tc.newer, tc.weaker}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(differences{})); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// stored returns the definition as the API server has it.
func stored(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	return definition
}

func TestDefinitionsBeyondTheSchema(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinitionSpec)
		weaker []string
	}{
		"further version": {func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
			spec.Versions = append(spec.Versions, *spec.Versions[0].DeepCopy())
			spec.Versions[1].Name = "v0"
		}, []string{"versions.v0"}},
		"conversion webhook": {func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
			spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{}}
		}, []string{"conversion.strategy", "conversion.webhook"}},
		"no status": {func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
			spec.Versions[0].Subresources = nil
		}, []string{"versions.v1alpha1.subresources"}},
	} {
		installed := policyDefinition(t)
		tc.change(&installed.Spec)
		if diff := cmp.Diff(differences{weaker: tc.weaker}, compareDefinitions(policyDefinition(t), stored(installed)), cmp.AllowUnexported(differences{})); diff != "" {
			t.Errorf("%s: differences (-want +got):\n%s", name, diff)
		}
	}
}
