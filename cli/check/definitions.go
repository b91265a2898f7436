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
	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/optionalkind"
)

// checkDefinitions compares the installed CRDs with the CRDs in this program.
func (c *checker) checkDefinitions(ctx context.Context) error {
	known, err := config.Definitions()
	if err != nil {
		return err
	}
	for i := range known {
		if known[i].Spec.Scope == apiextensionsv1.ClusterScoped && !c.readsCluster() {
			continue // the operator does not read cluster policies
		}
		if err := c.checkDefinition(ctx, &known[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkDefinition(ctx context.Context, known *apiextensionsv1.CustomResourceDefinition) error {
	name, version := known.Name, v1alpha1.GroupVersion.Version
	hint := "install the CRDs of this version: " + c.apply("crd", "crds.install=true")
	installed := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, installed)
	schema := servedSchema(installed, version)
	switch {
	case c.unreadable(err, "CRD "+name):
		return nil
	case apierrors.IsNotFound(err):
		c.fail(hint, "CRD %s is missing", name)
		return nil
	case err != nil:
		return fmt.Errorf("get CRD %s: %w", name, err)
	case !optionalkind.IsEstablished(*installed):
		c.fail("read its conditions: kubectl describe crd "+name, "CRD %s is not served", name)
		return nil
	case schema == nil:
		c.fail(hint, "CRD %s does not serve version %s", name, version)
		return nil
	}
	own := servedSchema(known, version)
	older, newer := missingFields(own, schema, ""), missingFields(schema, own, "")
	if len(older) > 0 {
		c.warn(hint, "CRD %s has another version and lacks %s", name, firstOf(older))
	}
	if len(newer) > 0 {
		c.warn(versionHint, "CRD %s has another version and fields unknown to this program: %s", name, firstOf(newer))
	}
	if len(older)+len(newer) == 0 {
		c.ok("CRD %s serves version %s with every field", name, version)
	}
	return nil
}

// servedSchema returns the schema of a served version, or nil.
func servedSchema(definition *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
	for _, v := range definition.Spec.Versions {
		if v.Name == version && v.Served && v.Schema != nil {
			return v.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// missingFields lists the fields and enum values of the first schema that the second one lacks. It omits fields below a missing
// field. It ignores descriptions, rules and limits: the API server may store them in another form, and tools remove
// descriptions.
func missingFields(first, second *apiextensionsv1.JSONSchemaProps, at string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(first.Properties)) {
		path := strings.TrimPrefix(at+"."+name, ".")
		inFirst := first.Properties[name]
		inSecond, ok := second.Properties[name]
		if !ok {
			all = append(all, path)
			continue
		}
		all = append(all, missingFields(&inFirst, &inSecond, path)...)
	}
	if first.Items != nil && first.Items.Schema != nil && second.Items != nil && second.Items.Schema != nil {
		all = append(all, missingFields(first.Items.Schema, second.Items.Schema, at+"[]")...)
	}
	for _, value := range first.Enum {
		hasValue := func(other apiextensionsv1.JSON) bool { return string(other.Raw) == string(value.Raw) }
		if len(second.Enum) > 0 && !slices.ContainsFunc(second.Enum, hasValue) {
			all = append(all, fmt.Sprintf("value %s of %s", strings.Trim(string(value.Raw), `"`), at))
		}
	}
	return all
}
