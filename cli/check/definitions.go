// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

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
	found := compareDefinitions(known, installed)
	if len(found.older) > 0 {
		c.warn(hint, "CRD %s has another version and lacks %s", name, firstOf(found.older))
	}
	if len(found.newer) > 0 {
		c.warn(versionHint, "CRD %s has another version and fields unknown to this program: %s", name, firstOf(found.newer))
	}
	if len(found.weaker) > 0 {
		c.warn("if this is not intended, restore it: "+c.restore("crd", "crds.install=true"),
			"CRD %s accepts more than this version ships: %s", name, firstOf(found.weaker))
	}
	if len(found.older)+len(found.newer)+len(found.weaker) == 0 {
		c.ok("CRD %s serves version %s with every field and rule", name, version)
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
