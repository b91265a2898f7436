// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const installHint = "install the operator: kubectl apply -k config/default"

func (c *checker) operator(ctx context.Context) error {
	for _, check := range []func(context.Context) error{c.definitions, c.deployment, c.admission} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
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
	c.operatorVersion(deployment)
	if c.badFlags != nil {
		c.fail(fmt.Sprintf("correct them: kubectl edit deployment/%s -n %s. If the operator runs with them, %s", deployment.Name, deployment.Namespace, versionHint),
			"the operator cannot start with its flags, and what follows goes by the default ones: %v", c.badFlags)
	} else {
		c.flags()
		c.images()
		c.metrics()
	}
	if deployment.Status.ReadyReplicas == 0 {
		return nil
	}
	return c.lease(ctx, deployment)
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
		{v1alpha1.ModePodPhase, "--pod-phase", !capabilities.PodPhase.Allowed()},
	} {
		if mode.disabled {
			c.warn("this is a choice; to undo it set "+mode.flag+"=Enabled", "the operator runs without mode %s", mode.name)
		}
	}
	if c.settings.PrePullDisabled {
		c.warn("this is a choice; to undo it set --pre-pull=Enabled", "the operator pulls no images ahead (prePull of policies)")
	}
}

// images says which images policies may name.
func (c *checker) images() {
	switch list := c.settings.Capabilities.Images; {
	case c.settings.Capabilities.ImageDisabled:
	case len(list.Entries) == 0 && !list.DigestRequired:
		c.ok("policies may name any quick-exit image; --allowed-quick-exit-image would list those that they may")
	case len(list.Entries) == 0:
		c.ok("policies may name any quick-exit image by its digest")
	default:
		var entries []string
		for _, entry := range list.Entries {
			entries = append(entries, entry.String())
		}
		c.ok("policies may name the quick-exit images %s", strings.Join(entries, ", "))
	}
}

// metrics says who may read them.
func (c *checker) metrics() {
	switch metrics := c.settings.Metrics; {
	case metrics.Address == "":
		c.warn("set --metrics-bind-address: without metrics no alert says that pods hang", "the operator serves no metrics")
	case !metrics.Authenticated:
		c.warn("set --metrics-authentication=Enabled", "metrics are served in the clear, to all who reach %s", metrics.Address)
	default:
		c.ok("metrics are served on %s to those who may get /metrics", metrics.Address)
	}
}

// admissionPolicy is one that the operator is installed with. Its binding has the same name.
type admissionPolicy struct {
	name string
	// does and missing say what it is good for.
	does, missing string
	// needed is whether the operator, as it runs, has a use for it.
	needed bool
}

// admissionPolicies are those of config/admission, to which a test holds them.
func (c *checker) admissionPolicies() []admissionPolicy {
	capabilities := c.settings.Capabilities
	return []admissionPolicy{
		{"sidecar-termination-phase-guard", "keeps the phases that are written",
			"a phase that mode PodPhase writes may be taken back for a moment", capabilities.PodPhase.Allowed()},
		{"sidecar-termination-operator-limits", "holds the operator to images and phases",
			"nothing but RBAC limits what the operator's ServiceAccount can do to pods", true},
		{"sidecar-termination-operator-requests", "holds the operator to requests and pull jobs of its own",
			"nothing but RBAC limits what the operator's ServiceAccount can ask of OpenKruise, and delete of what others asked",
			!capabilities.CRRDisabled || !c.settings.PrePullDisabled},
		{"sidecar-termination-mode-crr", "asks authors of policies for the right that mode CRR takes",
			"whoever may write policies can have containers stopped through them", !capabilities.CRRDisabled},
		{"sidecar-termination-mode-image", "asks authors of policies for the right that mode Image takes",
			"whoever may write policies can have images of pods changed through them", !capabilities.ImageDisabled},
		{"sidecar-termination-mode-pod-phase", "asks authors of policies for the right that mode PodPhase takes",
			"whoever may write policies can have pods ended through them", capabilities.PodPhase.Allowed()},
		{"sidecar-termination-mode-pre-pull", "asks authors of policies for the right that pre-pull takes",
			"whoever may write policies can have images pulled to nodes through them", !c.settings.PrePullDisabled},
	}
}

func (c *checker) admission(ctx context.Context) error {
	for _, policy := range c.admissionPolicies() {
		if !policy.needed {
			continue
		}
		switch missing, err := c.lacks(ctx, policy.name); {
		case c.unreadable(err, "admission policies"):
			return nil
		case err != nil:
			return err
		case missing:
			c.warn("install it: kubectl apply -k config/admission", "admission policy %s is missing: %s", policy.name, policy.missing)
		default:
			c.ok("admission policy %s %s", policy.name, policy.does)
		}
	}
	return nil
}

// lacks reports whether the admission policy or its binding is missing.
func (c *checker) lacks(ctx context.Context, name string) (bool, error) {
	for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		switch err := c.client.Get(ctx, client.ObjectKey{Name: name}, object); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("get admission policy %s: %w", name, err)
		}
	}
	return false, nil
}
