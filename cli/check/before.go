// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/settings"
)

// checksBefore are those of a cluster in which nothing is installed.
var checksBefore = []check{
	{"Kubernetes", "KubernetesVersion", (*checker).checkKubernetes, nil},
	{"Kubernetes", "APIs", (*checker).checkAPIs, nil},
	{"Operator", "NotInstalled", (*checker).checkNotInstalled, nil},
	{"Your permissions", "InstallPermissions", (*checker).checkInstaller, nil},
	{"Network", "Network", (*checker).checkNetwork, (*checker).endsByPhase},
	{"OpenKruise", "OpenKruise", (*checker).checkKruise, nil},
	{"OpenKruise", "OpenKruiseDaemon", (*checker).checkKruiseDaemon, (*checker).usesKruise},
	{"OpenKruise", "OpenKruiseSidecarTerminator", (*checker).checkKruiseManager, (*checker).usesKruise},
}

const admissionGroup = "admissionregistration.k8s.io"

// serves reports whether the API server serves the admission policies in version v1.
func (c *checker) serves(kind string) (bool, error) {
	_, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: admissionGroup, Kind: kind}, "v1")
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("get %s: %w", kind, err)
	}
	return err == nil, nil
}

// checkAPIs says which of the installations fits the API server.
func (c *checker) checkAPIs(context.Context) error {
	validating, err := c.serves("ValidatingAdmissionPolicy")
	if err != nil {
		return err
	}
	mutating, err := c.serves("MutatingAdmissionPolicy")
	switch {
	case err != nil:
		return err
	case !validating:
		c.fail("upgrade Kubernetes, or enable the API", "the API server does not serve ValidatingAdmissionPolicies in version v1")
	case !mutating:
		c.ok("the API server serves no MutatingAdmissionPolicies, so the operator decides the outcome of pods. Install it with: %s", c.apply("overlays/before-1.36"))
	default:
		c.ok("the API server serves all admission policies. Install the operator with: %s", c.apply("default"))
	}
	return nil
}

// checkNotInstalled finds an operator, and definitions that an earlier one has left with their policies.
func (c *checker) checkNotInstalled(ctx context.Context) error {
	if c.unreadable(c.deploymentError, "Deployments in "+c.operator.Where) {
		return nil
	}
	if c.deployment != nil {
		c.warn("check it without --pre", "an operator is installed in namespace %s", c.deployment.Namespace)
		return nil
	}
	definitions, err := config.Definitions()
	if err != nil {
		return err
	}
	c.ok("no operator found in %s", c.operator.Where)
	for i := range definitions {
		name := definitions[i].Name
		err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{})
		switch {
		case c.unreadable(err, "CRD "+name):
		case err == nil:
			c.warn("list its objects: kubectl get "+name+" -A", "CRD %s exists: an operator will act on the policies that are there", name)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get CRD %s: %w", name, err)
		}
	}
	return nil
}

// installedKinds are the resources of config/default, as resource.group. Those in a namespace have the suffix /.
var installedKinds = []string{
	"namespaces", "customresourcedefinitions.apiextensions.k8s.io",
	"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"validatingadmissionpolicies." + admissionGroup, "validatingadmissionpolicybindings." + admissionGroup,
	"mutatingadmissionpolicies." + admissionGroup, "mutatingadmissionpolicybindings." + admissionGroup,
	"roles.rbac.authorization.k8s.io/", "rolebindings.rbac.authorization.k8s.io/",
	"serviceaccounts/", "deployments.apps/", "poddisruptionbudgets.policy/",
}

// checkInstaller asks the API server whether the user can install config/default. Who creates a role must have its permissions, or may
// escalate and bind roles.
func (c *checker) checkInstaller(ctx context.Context) error {
	namespace := cmp.Or(c.connection.OperatorNamespace, settings.Namespace)
	mutating, err := c.serves("MutatingAdmissionPolicy")
	if err != nil {
		return err
	}
	var needed []permission
	for _, kind := range installedKinds {
		resource, namespaced := strings.CutSuffix(kind, "/")
		if !mutating && strings.HasPrefix(resource, "mutating") {
			continue
		}
		p := permission{verbs: []string{"create", "patch"}}
		p.Resource, p.Group, _ = strings.Cut(resource, ".")
		if namespaced {
			p.Namespace = namespace
		}
		needed = append(needed, p)
	}
	grant := permission{verbs: []string{"escalate", "bind"}}
	grant.Resource, grant.Group = "clusterroles", "rbac.authorization.k8s.io"
	cannotGrant, err := c.denied(ctx, grant, ofUser)
	if err != nil {
		return err
	}
	if len(cannotGrant) > 0 {
		granted, err := c.permissions()
		if err != nil {
			return err
		}
		needed = append(needed, granted...)
	}
	missing, err := c.failDenied(ctx, needed, ofUser, "let a cluster administrator install the operator", "you")
	if err == nil && !missing {
		c.ok("you have the permissions to install the operator in namespace %s", namespace)
	}
	return err
}
