// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config/crd"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// notInstalled is the only result if neither the operator nor a CRD of it was found: everything else would follow from that.
func (c *checker) notInstalled(context.Context) error {
	c.name = "Deployment"
	c.fail(c.installHint(), "the operator is not installed: namespace %s has no Deployment of it, and the cluster has none of its CRDs", c.namespace)
	return nil
}

// isInstalled reports whether the operator or a CRD of it was found, or may exist because the user may not read it.
func (c *checker) isInstalled(ctx context.Context) (bool, error) {
	if c.deploymentName != "" || c.deploymentUnreadable {
		return true, nil
	}
	known, err := crd.Read()
	if err != nil {
		return false, err
	}
	for i := range known {
		err := c.client.Get(ctx, client.ObjectKey{Name: known[i].Name}, &apiextensionsv1.CustomResourceDefinition{})
		switch {
		case err == nil, apierrors.IsForbidden(err):
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("get CRD %s: %w", known[i].Name, err)
		}
	}
	return false, nil
}

func (c *checker) installHint() string {
	return "install the operator: " + c.installer.apply("default") + ", or install its Helm chart"
}

func (c *checker) operator(ctx context.Context) error {
	for _, check := range []func(context.Context) error{c.definitions, c.deployment, c.admission} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) deployment(ctx context.Context) error {
	c.name = "Deployment"
	deployment, ok, err := c.readDeployment(ctx)
	switch {
	case !ok:
		return err
	case deployment == nil:
		c.fail(c.installHint()+", or set --operator-namespace", "no operator found in namespace %s", c.namespace)
		return nil
	}
	name := deployment.Namespace + "/" + deployment.Name
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	switch status := deployment.Status; {
	case wanted == 0:
		hint := "kubectl scale deployment/" + deployment.Name + " -n " + deployment.Namespace + " --replicas=2"
		if c.installer.release != "" {
			hint = c.installer.upgrade("replicas=2")
		}
		c.fail(hint, "Deployment %s is scaled to 0", name)
	case status.ReadyReplicas == 0:
		c.fail("find the cause: kubectl describe pods -n "+deployment.Namespace, "Deployment %s has 0 of %d ready pods", name, wanted)
	case status.ReadyReplicas < wanted:
		c.warn("find the cause: kubectl describe pods -n "+deployment.Namespace, "Deployment %s has %d of %d ready pods", name, status.ReadyReplicas, wanted)
	default:
		c.ok("Deployment %s is ready (%d of %d), image %s", name, status.ReadyReplicas, wanted, imageOf(deployment))
	}
	c.operatorVersion(deployment)
	if c.flagsError != nil {
		c.name = "Flags"
		edit := fmt.Sprintf("kubectl edit deployment/%s -n %s", deployment.Name, deployment.Namespace)
		if c.installer.release != "" {
			edit = c.installer.upgrade("flags.FLAG=VALUE")
		}
		c.fail(fmt.Sprintf("correct them: %s. If the operator runs with them, %s", edit, versionHint),
			"the operator cannot start with its flags, so the other checks assume the defaults: %v", c.flagsError)
	} else {
		if err := c.namespaces(ctx); err != nil {
			return err
		}
		c.flags()
		c.images()
		c.metrics()
	}
	if deployment.Status.ReadyReplicas == 0 {
		return nil
	}
	return c.lease(ctx, deployment)
}

// readDeployment returns the operator's Deployment, or nil if there is none. It returns false if the Deployment cannot be read,
// and reports missing permission as a warning instead of an error.
func (c *checker) readDeployment(ctx context.Context) (deployment *appsv1.Deployment, ok bool, err error) {
	deployment, err = c.Operator(ctx)
	if c.unreadable(err, "Deployments in namespace "+c.namespace) {
		return nil, false, nil
	}
	return deployment, err == nil, err
}

func imageOf(deployment *appsv1.Deployment) string {
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// flags checks for disabled features.
func (c *checker) flags() {
	c.name = "Flags"
	if image := c.settings.Resolve.Image; image != "" {
		c.ok("the quick-exit image is %s", image)
	} else {
		c.warn("otherwise mode Image, the only mode on virtual nodes, needs an image in each policy: "+c.installer.set("--quick-exit-image", "quickExitImage=IMAGE"),
			"no quick-exit image is set")
	}
	for _, mode := range []struct {
		name        v1alpha1.Mode
		flag, value string
	}{{v1alpha1.ModeCRR, "--crr", "modes.crr"}, {v1alpha1.ModeImage, "--image-swap", "modes.image"}, {v1alpha1.ModePodPhase, "--pod-phase", "modes.podPhase"}} {
		if mode.name == v1alpha1.ModeCRR && c.settings.Capabilities.NamespacesOnly {
			continue
		}
		if !c.settings.Capabilities.Enabled(mode.name) {
			c.warn("if this is not intended: "+c.installer.set(mode.flag+"=Enabled", mode.value+"=Enabled"), "mode %s is disabled", mode.name)
		}
	}
	if !c.settings.Capabilities.PrePull && !c.settings.Capabilities.NamespacesOnly {
		c.warn("if this is not intended: "+c.installer.set("--pre-pull=Enabled", "prePull=Enabled"), "prePull of policies is disabled")
	}
}

// images lists the allowed quick-exit images.
func (c *checker) images() {
	c.name = "QuickExitImages"
	switch list := c.settings.Capabilities.Images; {
	case !c.settings.Capabilities.Image:
	case len(list.Entries) == 0:
		c.ok("policies and variables may use any quick-exit image; restrict them with --allowed-quick-exit-image")
	default:
		var entries []string
		for _, entry := range list.Entries {
			entries = append(entries, entry.String())
		}
		c.ok("policies and variables may use the quick-exit images %s", strings.Join(entries, ", "))
	}
}

// metrics checks who may read metrics.
func (c *checker) metrics() {
	c.name = "Metrics"
	switch metrics := c.settings.Metrics; {
	case metrics.Address == "":
		c.warn("without metrics there are no alerts on stuck pods: "+c.installer.set("--metrics-bind-address=:8443"), "the operator serves no metrics")
	case !metrics.Authenticated && c.settings.Capabilities.NamespacesOnly:
		c.warn("limit who can connect with a NetworkPolicy, or grant the operator create on tokenreviews and subjectaccessreviews and "+
			c.installer.set("--metrics-authentication=Enabled"), "metrics are served on %s without TLS and authentication", metrics.Address)
	case !metrics.Authenticated:
		c.warn(c.installer.set("--metrics-authentication=Enabled"), "metrics are served on %s without TLS and authentication", metrics.Address)
	default:
		c.ok("metrics are served on %s to users who may get /metrics", metrics.Address)
	}
}

// phaseGuard is the admission policy that denies to revert a written phase.
const phaseGuard = "sidecar-termination-phase-guard"

// admissionPolicy is an admission policy of the installation. Its binding has the same name.
type admissionPolicy struct {
	name string
	// does and missing describe its effect, and the effect of its absence.
	does, missing string
	// needed is true if the operator's flags enable what it protects.
	needed bool
}

// admissionPolicies are the policies in config/admission. A test compares them.
func (c *checker) admissionPolicies() []admissionPolicy {
	enabled := c.settings.Capabilities.EnabledModes
	podPhase := enabled.Enabled(v1alpha1.ModePodPhase)
	return []admissionPolicy{
		{phaseGuard, "protects written phases",
			"the kubelet may revert a phase of mode PodPhase for a moment", podPhase},
		{"sidecar-termination-operator-limits", "limits the operator to images and phases",
			"only RBAC limits what the operator's ServiceAccount can do to pods", true},
		{"sidecar-termination-operator-requests", "limits the operator to its own CRRs and ImagePullJobs",
			"only RBAC limits which CRRs and ImagePullJobs the operator's ServiceAccount can create and delete",
			enabled.CRR || enabled.PrePull},
		{"sidecar-termination-mode-crr", "requires authors of policies to have the permission for mode CRR",
			"anyone who may write policies can stop containers", enabled.CRR},
		{"sidecar-termination-mode-image", "requires authors of policies to have the permission for mode Image",
			"anyone who may write policies can change images of pods", enabled.Image},
		{"sidecar-termination-mode-pod-phase", "requires authors of policies to have the permission for mode PodPhase",
			"anyone who may write policies can end pods", podPhase},
		{"sidecar-termination-mode-pre-pull", "requires authors of policies to have the permission for prePull",
			"anyone who may write policies can pull images to nodes", enabled.PrePull},
	}
}

func (c *checker) admission(ctx context.Context) error {
	c.name = "AdmissionPolicies"
	for _, policy := range c.admissionPolicies() {
		if !policy.needed {
			continue
		}
		name := c.installedName(policy.name)
		missing, err := c.isMissing(ctx, name)
		switch {
		case c.unreadable(err, "admission policies"):
			return nil
		case err != nil:
			return err
		case missing:
			c.warn("install it: "+c.installer.apply("admission", "admissionPolicies.enabled=true"), "admission policy %s is missing: %s", name, policy.missing)
		default:
			c.ok("admission policy %s %s", name, policy.does)
		}
		if policy.name == phaseGuard {
			c.stabilizationWindow(!missing)
		}
	}
	return nil
}

// stabilizationWindow compares the stabilization window with what the phase guard permits.
func (c *checker) stabilizationWindow(guarded bool) {
	window := c.settings.StabilizationWindow
	switch {
	case !guarded && window < plan.UnguardedWindow:
		c.warn("install the phase guard, or "+c.installer.set(fmt.Sprintf("--stabilization-window=%s", plan.UnguardedWindow)),
			"without the phase guard, a stabilization window of %s is too short: kubelets may revert written phases", window)
	case guarded && window > 0:
		c.warn(c.installer.set("--stabilization-window=0s"), "Jobs complete %s later than necessary: with the phase guard, phases can be written at once", window)
	default:
		c.ok("the stabilization window of %s fits", window)
	}
}

// installedName returns a name of config/default as it is in the cluster. A Helm release, and namePrefix and nameSuffix of
// kustomize, may change what names begin and end with.
func (c *checker) installedName(name string) string {
	const role = "-controller-manager"
	base := strings.TrimSuffix(settings.DeploymentName, role)
	if prefix, suffix, ok := strings.Cut(c.deploymentName, role); ok {
		return prefix + strings.TrimPrefix(name, base) + suffix
	}
	return name
}

// isMissing reports whether the admission policy or its binding is missing.
func (c *checker) isMissing(ctx context.Context, name string) (bool, error) {
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
