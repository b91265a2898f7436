// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config/crd"
	"github.com/sidecar-termination/operator/internal/served"
)

const definitionsHint = "install the definitions of this version: kubectl apply --server-side -k config/crd"

// definitions compares the definitions of the policies with those that this program was built with.
func (c *checker) definitions(ctx context.Context) error {
	known, err := crd.Read()
	if err != nil {
		return err
	}
	for i := range known {
		if err := c.definition(ctx, &known[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) definition(ctx context.Context, known *apiextensionsv1.CustomResourceDefinition) error {
	name, version := known.Name, v1alpha1.GroupVersion.Version
	installed := &apiextensionsv1.CustomResourceDefinition{}
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, installed)
	schema := servedSchema(installed, version)
	switch {
	case c.unreadable(err, "definition "+name):
		return nil
	case apierrors.IsNotFound(err):
		c.fail(installHint, "definition %s is missing", name)
		return nil
	case err != nil:
		return fmt.Errorf("get definition %s: %w", name, err)
	case !served.IsEstablished(*installed):
		c.fail("see its conditions: kubectl describe crd "+name, "definition %s is not served", name)
		return nil
	case schema == nil:
		c.fail(definitionsHint, "definition %s does not serve version %s", name, version)
		return nil
	}
	own := servedSchema(known, version)
	older, newer := lacking(own, schema, ""), lacking(schema, own, "")
	if len(older) > 0 {
		c.warn(definitionsHint, "definition %s is of another version, and does not have %s", name, firstOf(older))
	}
	if len(newer) > 0 {
		c.warn(versionHint, "definition %s is of another version, and has what this program does not know: %s", name, firstOf(newer))
	}
	if len(older)+len(newer) == 0 {
		c.ok("definition %s serves version %s with every field", name, version)
	}
	return nil
}

// servedSchema returns the schema of the version, or nil where the definition does not serve it.
func servedSchema(definition *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
	for _, v := range definition.Spec.Versions {
		if v.Name == version && v.Served && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// lacking lists what the first schema has and the second one lacks: fields, and values of fields that may have few. What is
// below a field that is lacking is left out. Nothing else is compared: the API server may store descriptions, rules and
// limits in another form than they were written in, and tools leave descriptions out.
func lacking(first, second *apiextensionsv1.JSONSchemaProps, at string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(first.Properties)) {
		path := strings.TrimPrefix(at+"."+name, ".")
		inFirst := first.Properties[name]
		inSecond, ok := second.Properties[name]
		if !ok {
			all = append(all, path)
			continue
		}
		all = append(all, lacking(&inFirst, &inSecond, path)...)
	}
	if first.Items != nil && first.Items.Schema != nil && second.Items != nil && second.Items.Schema != nil {
		all = append(all, lacking(first.Items.Schema, second.Items.Schema, at+"[]")...)
	}
	if len(second.Enum) == 0 {
		return all
	}
	known := valuesOf(second)
	for _, value := range valuesOf(first) {
		if !slices.Contains(known, value) {
			all = append(all, fmt.Sprintf("value %s of %s", value, at))
		}
	}
	return all
}

// valuesOf lists the values that a field of few values may have.
func valuesOf(schema *apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	for _, value := range schema.Enum {
		all = append(all, strings.Trim(string(value.Raw), `"`))
	}
	return all
}
