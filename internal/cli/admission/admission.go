// SPDX-License-Identifier: Apache-2.0

// Package admission holds policies to what the API server would hold them to: to the schema and the rules of their
// definitions, by the code that the API server does it with. It is for manifests, which no API server has seen.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

	"github.com/sidecar-termination/operator/config/crd"
)

// validator checks the policies of one kind and version.
type validator struct {
	namespaced bool
	schema     *structuralschema.Structural
	fields     validation.SchemaValidator
	rules      *cel.Validator
}

// validators are made when the first policy is checked: compiling the rules takes a moment.
var validators = sync.OnceValues(load)

// Check returns why the API server would refuse to create the policy, nothing if it would take it. The namespace must be set.
// An error says that there is no telling.
func Check(ctx context.Context, policy *unstructured.Unstructured) (field.ErrorList, error) {
	known, err := validators()
	if err != nil {
		return nil, err
	}
	v, ok := known[policy.GroupVersionKind()]
	if !ok {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), policy.GetAPIVersion()+", kind "+policy.GetKind(), names(known))}, nil
	}
	return v.check(ctx, policy), nil
}

func (v *validator) check(ctx context.Context, policy *unstructured.Unstructured) field.ErrorList {
	object := policy.DeepCopy().Object
	var refused field.ErrorList
	// kubectl asks the API server to refuse unknown fields instead of dropping them.
	unknown := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	paths := pruning.PruneWithOptions(object, v.schema, true, unknown)
	slices.Sort(paths)
	for _, unknown := range paths {
		refused = append(refused, field.Forbidden(field.NewPath(unknown), "there is no such field"))
	}
	defaulting.Default(object, v.schema)
	refused = append(refused, apivalidation.ValidateObjectMetaAccessor(policy, v.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	broken := validation.ValidateCustomResource(nil, object, v.fields)
	broken = append(broken, listtype.ValidateListSetsAndMaps(nil, v.schema, object)...)
	refused = append(refused, broken...)
	// A rule cannot be asked of what does not have the form that it was written for.
	if len(broken) == 0 {
		violated, _ := v.rules.Validate(ctx, nil, v.schema, object, nil, celconfig.RuntimeCELCostBudget)
		refused = append(refused, violated...)
	}
	// The schema's fields are gone through in the order of a map.
	slices.SortStableFunc(refused, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Error(), b.Error()))
	})
	return refused
}

// load makes the validators of the definitions.
func load() (map[schema.GroupVersionKind]*validator, error) {
	definitions, err := crd.Read()
	if err != nil {
		return nil, err
	}
	known := map[schema.GroupVersionKind]*validator{}
	for _, external := range definitions {
		for _, version := range external.Spec.Versions {
			v, err := newValidator(version.Schema)
			if err != nil {
				return nil, fmt.Errorf("prepare the definition %s, version %s: %w", external.Name, version.Name, err)
			}
			v.namespaced = external.Spec.Scope == apiextensionsv1.NamespaceScoped
			known[schema.GroupVersionKind{Group: external.Spec.Group, Version: version.Name, Kind: external.Spec.Names.Kind}] = v
		}
	}
	return known, nil
}

func newValidator(external *apiextensionsv1.CustomResourceValidation) (*validator, error) {
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
	return &validator{
		schema: structural, fields: fields, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// names lists what there are validators for.
func names(known map[schema.GroupVersionKind]*validator) []string {
	var all []string
	for kind := range known {
		all = append(all, kind.GroupVersion().String()+", kind "+kind.Kind)
	}
	slices.Sort(all)
	return all
}
