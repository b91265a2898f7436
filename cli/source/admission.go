// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/explain"
)

// validator checks the policies of one kind and version like the API server: by the schema and the CEL rules of the CRD, with the
// same code.
type validator struct {
	namespaced bool
	schema     *structuralschema.Structural
	fields     validation.SchemaValidator
	rules      *cel.Validator
}

// validators are built for the first policy, because compiling the rules takes time. They have the version and kind as their key.
var validators = sync.OnceValues(loadValidators)

func versionAndKind(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + ", kind " + kind.Kind
}

// validate returns the errors with which the API server would reject the policy. The namespace must be set. An error means that the
// validators could not be built.
func validate(ctx context.Context, policy *unstructured.Unstructured) (field.ErrorList, error) {
	known, err := validators()
	if err != nil {
		return nil, err
	}
	kind := versionAndKind(policy.GroupVersionKind())
	v, ok := known[kind]
	if !ok {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), kind, slices.Sorted(maps.Keys(known)))}, nil
	}
	return v.check(ctx, policy), nil
}

// unknownField says what happens to a field that the definition does not have, and which one its author may mean.
func (v *validator) unknownField(path string) *field.Error {
	fields := strings.Split(path, ".")
	parent, last := *v.schema, len(fields)-1
	for _, name := range fields[:last] {
		name, _, isItem := strings.Cut(name, "[")
		if parent = parent.Properties[name]; isItem && parent.Items != nil {
			parent = *parent.Items
		}
	}
	detail := "unknown field, which kubectl refuses and other clients drop without a word"
	if meant := explain.Similar(fields[last], slices.Sorted(maps.Keys(parent.Properties))); meant != "" {
		detail += fmt.Sprintf("; did you mean %s?", meant)
	}
	return field.Forbidden(field.NewPath(path), detail)
}

func (v *validator) check(ctx context.Context, policy *unstructured.Unstructured) field.ErrorList {
	object := policy.DeepCopy().Object
	var errors field.ErrorList
	unknown := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	paths := pruning.PruneWithOptions(object, v.schema, true, unknown)
	slices.Sort(paths)
	for _, unknown := range paths {
		errors = append(errors, v.unknownField(unknown))
	}
	defaulting.Default(object, v.schema)
	errors = append(errors, apivalidation.ValidateObjectMetaAccessor(policy, v.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	schemaErrors := validation.ValidateCustomResource(nil, object, v.fields)
	schemaErrors = append(schemaErrors, listtype.ValidateListSetsAndMaps(nil, v.schema, object)...)
	errors = append(errors, schemaErrors...)
	// CEL rules require an object that matches the schema.
	if len(schemaErrors) == 0 {
		ruleErrors, _ := v.rules.Validate(ctx, nil, v.schema, object, nil, celconfig.RuntimeCELCostBudget)
		errors = append(errors, ruleErrors...)
	}
	// The errors come in map order.
	slices.SortStableFunc(errors, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Error(), b.Error()))
	})
	return errors
}

// loadValidators builds the validators from the CRDs.
func loadValidators() (map[string]*validator, error) {
	definitions, err := config.Definitions()
	if err != nil {
		return nil, err
	}
	known := map[string]*validator{}
	for _, external := range definitions {
		for _, version := range external.Spec.Versions {
			v, err := newValidator(version.Schema, external.Spec.Scope == apiextensionsv1.NamespaceScoped)
			if err != nil {
				return nil, fmt.Errorf("load CRD %s, version %s: %w", external.Name, version.Name, err)
			}
			known[versionAndKind(schema.GroupVersionKind{Group: external.Spec.Group, Version: version.Name, Kind: external.Spec.Names.Kind})] = v
		}
	}
	return known, nil
}

func newValidator(external *apiextensionsv1.CustomResourceValidation, namespaced bool) (*validator, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(external, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	fields, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	return &validator{namespaced, structural, fields, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}
