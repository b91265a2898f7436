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
	edit := func(in properties, name string, change func(field *apiextensionsv1.JSONSchemaProps)) {
		field := in[name]
		change(&field)
		in[name] = field
	}
	for name, tc := range map[string]struct {
		change               func(all, spec properties)
		older, newer, weaker []string
	}{
		"same": {func(_, _ properties) {}, nil, nil, nil},
		"other descriptions and messages": {func(all, _ properties) {
			edit(all, "spec", func(field *apiextensionsv1.JSONSchemaProps) {
				field.Description = ""
				for i := range field.XValidations {
					field.XValidations[i].Message = "no"
				}
			})
		}, nil, nil, nil},
		"stricter": {func(_, spec properties) {
			edit(spec, "sidecars", func(field *apiextensionsv1.JSONSchemaProps) {
				field.MaxItems, field.MinItems = ptr.To[int64](3), ptr.To[int64](2)
				field.XValidations = append(field.XValidations, apiextensionsv1.ValidationRule{Rule: "false"})
			})
		}, nil, nil, nil},
		"no rules": {func(all, _ properties) {
			edit(all, "spec", func(field *apiextensionsv1.JSONSchemaProps) { field.XValidations = nil })
		}, nil, nil, []string{"spec.x-kubernetes-validations"}},
		"one rule less": {func(all, _ properties) {
			edit(all, "spec", func(field *apiextensionsv1.JSONSchemaProps) { field.XValidations = field.XValidations[1:] })
		}, nil, nil, []string{"spec.x-kubernetes-validations"}},
		"higher and missing limits": {func(_, spec properties) {
			edit(spec, "sidecars", func(field *apiextensionsv1.JSONSchemaProps) { field.MaxItems = ptr.To[int64](1000) })
			edit(spec, "image", func(field *apiextensionsv1.JSONSchemaProps) { field.MaxLength = nil })
		}, nil, nil, []string{"spec.image.maxLength", "spec.sidecars.maxItems"}},
		"unknown fields kept": {func(all, _ properties) {
			edit(all, "spec", func(field *apiextensionsv1.JSONSchemaProps) { field.XPreserveUnknownFields = ptr.To(true) })
		}, nil, nil, []string{"spec.x-kubernetes-preserve-unknown-fields"}},
		"missing object": {func(_, spec properties) { delete(spec, "prePull") }, []string{"spec.prePull"}, nil, nil},
		"missing field of a list": {func(_, spec properties) { delete(spec["sidecars"].Items.Schema.Properties, "drainSeconds") },
			[]string{"spec.sidecars[].drainSeconds"}, nil, nil},
		"missing status": {func(all, _ properties) { delete(all, "status") }, []string{"status"}, nil, nil},
		"missing value": {func(_, spec properties) {
			edit(spec, "mode", func(field *apiextensionsv1.JSONSchemaProps) { field.Enum = field.Enum[:len(field.Enum)-1] })
		}, []string{"value PodPhase of spec.mode"}, nil, nil},
		"every value allowed": {func(_, spec properties) {
			edit(spec, "mode", func(field *apiextensionsv1.JSONSchemaProps) { field.Enum = nil })
		}, nil, nil, []string{"spec.mode.enum"}},
		"extra field and value": {func(_, spec properties) {
			spec["grace"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			edit(spec, "mode", func(field *apiextensionsv1.JSONSchemaProps) {
				field.Enum = append(field.Enum, apiextensionsv1.JSON{Raw: []byte(`"Ask"`)})
			})
		}, nil, []string{"spec.grace", "value Ask of spec.mode"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			installed := policyDefinition(t)
			schema := servedSchema(installed, v1alpha1.GroupVersion.Version)
			tc.change(schema.Properties, schema.Properties["spec"].Properties)
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
