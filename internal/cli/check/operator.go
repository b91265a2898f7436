// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

const installHint = "install the operator: kubectl apply -k config/default"

// definitions are the operator's own.
var definitions = []string{
	"sidecarterminationpolicies." + v1alpha1.GroupName,
	"clustersidecarterminationpolicies." + v1alpha1.GroupName,
}

// phaseGuard is the name of the admission policy that keeps a written phase, and of its binding.
const phaseGuard = "sidecar-termination-phase-guard"

func (c *checker) operator(ctx context.Context) error {
	for _, check := range []func(context.Context) error{c.definitions, c.deployment, c.phaseGuard} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) definitions(ctx context.Context) error {
	for _, name := range definitions {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, definition)
		switch {
		case c.unreadable(err, "definition "+name):
		case apierrors.IsNotFound(err):
			c.fail(installHint, "definition %s is missing", name)
		case err != nil:
			return fmt.Errorf("get definition %s: %w", name, err)
		case !crr.IsEstablished(*definition):
			c.fail("see its conditions: kubectl describe crd "+name, "definition %s is not served", name)
		case !serves(definition, v1alpha1.GroupVersion.Version):
			c.fail("install the definitions of this version: kubectl apply -k config/crd",
				"definition %s does not serve version %s", name, v1alpha1.GroupVersion.Version)
		default:
			c.ok("definition %s serves version %s", name, v1alpha1.GroupVersion.Version)
		}
	}
	return nil
}

func serves(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

func (c *checker) deployment(ctx context.Context) error {
	deployment, err := c.Operator(ctx)
	switch {
	case c.unreadable(err, "Deployments in namespace "+c.namespace):
		return nil
	case err != nil:
		return err
	case deployment == nil:
		c.fail(installHint+", or name its namespace: --operator-namespace", "there is no operator in namespace %s", c.namespace)
		return nil
	}
	name := deployment.Namespace + "/" + deployment.Name
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	switch status := deployment.Status; {
	case wanted == 0:
		c.fail("kubectl scale deployment/"+deployment.Name+" -n "+deployment.Namespace+" --replicas=2", "Deployment %s is scaled to 0", name)
	case status.ReadyReplicas == 0:
		c.fail("see why: kubectl describe pods -n "+deployment.Namespace, "Deployment %s has no ready pod of %d", name, wanted)
	case status.ReadyReplicas < wanted:
		c.warn("see why: kubectl describe pods -n "+deployment.Namespace, "Deployment %s has %d ready pods of %d", name, status.ReadyReplicas, wanted)
	default:
		c.ok("Deployment %s is ready (%d of %d), image %s", name, status.ReadyReplicas, wanted, imageOf(deployment))
	}
	c.flags()
	return nil
}

func imageOf(deployment *appsv1.Deployment) string {
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// flags says what the operator's flags leave out.
func (c *checker) flags() {
	if image := c.settings.Resolve.Image; image != "" {
		c.ok("the quick-exit image is %s", image)
	} else {
		c.warn("set --quick-exit-image: without it mode Image, the only one on virtual nodes, needs an image in each policy",
			"no quick-exit image is set")
	}
	capabilities := c.settings.Capabilities
	for _, mode := range []struct {
		name     v1alpha1.Mode
		flag     string
		disabled bool
	}{
		{v1alpha1.ModeCRR, "--crr", capabilities.CRRDisabled},
		{v1alpha1.ModeImage, "--image-swap", capabilities.ImageDisabled},
		{v1alpha1.ModePodPhase, "--pod-phase", !capabilities.PodPhase},
	} {
		if mode.disabled {
			c.warn("this is a choice; to undo it set "+mode.flag+"=Enabled", "the operator runs without mode %s", mode.name)
		}
	}
}

func (c *checker) phaseGuard(ctx context.Context) error {
	if !c.settings.Capabilities.PodPhase {
		return nil
	}
	for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		err := c.client.Get(ctx, client.ObjectKey{Name: phaseGuard}, object)
		switch {
		case c.unreadable(err, "admission policies"):
			return nil
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			c.warn("install it: kubectl apply -k config/admission",
				"admission policy %s is missing: a phase that mode PodPhase writes may be taken back for a moment", phaseGuard)
			return nil
		case err != nil:
			return fmt.Errorf("get admission policy %s: %w", phaseGuard, err)
		}
	}
	c.ok("admission policy %s keeps the phases that are written", phaseGuard)
	return nil
}
