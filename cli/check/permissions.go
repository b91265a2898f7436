// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/prepull/pulljob"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// permission is a set of verbs on a resource.
type permission struct {
	feature   feature // that needs it, or empty
	group     string
	resource  string // with its subresource
	name      string // of a single object, or empty
	namespace string // empty for cluster-wide permissions
	verbs     []string
	// perNamespace is true if an operator for single namespaces needs the permission in each of them.
	perNamespace bool
}

// feature is a part of the operator that flags can disable.
type feature string

const (
	featureCRR      = feature("mode " + v1alpha1.ModeCRR)
	featureImage    = feature("mode " + v1alpha1.ModeImage)
	featurePodPhase = feature("mode " + v1alpha1.ModePodPhase)
	featurePrePull  = feature("pre-pull")
	featureLease    = feature("leader election")
)

var (
	// watchVerbs are the verbs of a cache.
	watchVerbs = []string{"list", "watch"}

	// permissions are the cluster-wide permissions of the operator. A test compares them with config/rbac/role.yaml.
	permissions = []permission{
		{group: "", resource: "namespaces", verbs: watchVerbs},
		{group: "", resource: "nodes", verbs: watchVerbs},
		{group: "", resource: "pods", verbs: []string{"get", "list", "watch"}, perNamespace: true},
		{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}, perNamespace: true},
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}},
		{group: v1alpha1.GroupName, resource: "sidecarterminationpolicies", verbs: watchVerbs, perNamespace: true},
		{group: v1alpha1.GroupName, resource: "clustersidecarterminationpolicies", verbs: watchVerbs},
		{group: v1alpha1.GroupName, resource: "sidecarterminationpolicies/status", verbs: []string{"update"}, perNamespace: true},
		{group: v1alpha1.GroupName, resource: "clustersidecarterminationpolicies/status", verbs: []string{"update"}},
		{feature: featureCRR, group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: crr.DefinitionName, verbs: watchVerbs},
		{feature: featureCRR, group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", name: crr.WebhookConfigurationName, verbs: watchVerbs},
		{feature: featureCRR, group: "apps.kruise.io", resource: "containerrecreaterequests", verbs: []string{"list", "watch", "create", "delete"}},
		{feature: featureImage, group: "", resource: "pods", verbs: []string{"patch"}, perNamespace: true},
		{feature: featurePodPhase, group: "", resource: "pods/status", verbs: []string{"patch"}, perNamespace: true},
		{feature: featurePrePull, group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: pulljob.DefinitionName, verbs: watchVerbs},
		{feature: featurePrePull, group: "apps.kruise.io", resource: "imagepulljobs", verbs: []string{"list", "watch", "create", "delete"}},
	}
)

// leasePermissions are the permissions for leader election with the lease. A test compares them with
// config/rbac/leader_election_role.yaml.
func leasePermissions(namespace, name string) []permission {
	return []permission{
		{feature: featureLease, group: "coordination.k8s.io", resource: "leases", namespace: namespace, verbs: []string{"create"}},
		{feature: featureLease, group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: name, verbs: []string{"get", "update"}},
		{feature: featureLease, group: "", resource: "events", namespace: namespace, verbs: []string{"create", "patch"}},
	}
}

// permissions are the permissions of the operator by its flags, apart from those for leader election.
func (c *checker) permissions() []permission {
	if !c.settings.Capabilities.NamespacesOnly {
		return permissions
	}
	var all []permission
	for _, r := range permissions {
		switch {
		case r.perNamespace:
			for _, namespace := range c.settings.WatchNamespaces {
				r.namespace = namespace
				all = append(all, r)
			}
		case r.resource == "nodes" && c.settings.NodeKindRules.All == "",
			(r.resource == "tokenreviews" || r.resource == "subjectaccessreviews") && c.settings.Metrics.Authenticated:
			all = append(all, r)
		}
	}
	return all
}

// rolesDirectory is the directory of config with the operator's roles.
func (c *checker) rolesDirectory() string {
	if c.settings.Capabilities.NamespacesOnly {
		return "overlays/namespaced"
	}
	return "rbac"
}

// operatorPermissions checks the permissions of the operator's ServiceAccount.
func (c *checker) operatorPermissions(ctx context.Context) error {
	c.name = "Permissions"
	deployment, ok, err := c.readDeployment(ctx)
	switch {
	case !ok:
		return err
	case deployment == nil:
		return nil // another check has found that
	}
	account := serviceAccount{deployment.Namespace, cmp.Or(deployment.Spec.Template.Spec.ServiceAccountName, "default")}
	total, missing := 0, 0
	for _, r := range slices.Concat(c.permissions(), leasePermissions(c.leaseNamespace(deployment), c.settings.Lease.Name)) {
		if !c.isEnabled(r.feature) {
			continue
		}
		denied, err := c.denied(ctx, account, r)
		if apierrors.IsForbidden(err) {
			c.warn("ask someone who may create subjectaccessreviews", "you may not check the permissions of ServiceAccount %s", account.name)
			return nil
		}
		if err != nil {
			return err
		}
		total += len(r.verbs)
		if len(denied) > 0 {
			missing++
			c.fail("restore the operator's roles and bindings: "+c.installer.apply(c.rolesDirectory()), "ServiceAccount %s may not %s", account.name, r.describe(denied))
		}
	}
	if missing == 0 {
		c.ok("ServiceAccount %s has all %d permissions that the operator needs", account.name, total)
	}
	return nil
}

type serviceAccount struct{ namespace, name string }

// denied lists the verbs that the ServiceAccount may not use.
func (c *checker) denied(ctx context.Context, account serviceAccount, r permission) ([]string, error) {
	var denied []string
	for _, verb := range r.verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + account.namespace + ":" + account.name,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + account.namespace, "system:authenticated"},
			ResourceAttributes: r.attributes(verb),
		}}
		if err := c.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("check the operator's permissions: %w", err)
		}
		if !review.Status.Allowed {
			denied = append(denied, verb)
		}
	}
	return denied, nil
}

func (c *checker) isEnabled(u feature) bool {
	enabled := c.settings.Capabilities.EnabledModes
	switch u {
	case featureCRR:
		return enabled.CRR
	case featureImage:
		return enabled.Image
	case featurePodPhase:
		return enabled.Enabled(v1alpha1.ModePodPhase)
	case featurePrePull:
		return enabled.PrePull
	case featureLease:
		return c.settings.Lease.Name != ""
	}
	return true
}

func (r permission) attributes(verb string) *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	return &authorizationv1.ResourceAttributes{
		Namespace: r.namespace, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name, Verb: verb,
	}
}

func (r permission) describe(verbs []string) string {
	text := strings.Join(verbs, ", ") + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.name != "" {
		text += " named " + r.name
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	if r.feature != "" {
		text += fmt.Sprintf(" (%s)", r.feature)
	}
	return text
}

// installedKinds are the kinds of objects of an installation. A test compares them with config/default.
var installedKinds = []permission{
	{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
	{group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"},
	{group: "rbac.authorization.k8s.io", resource: "roles"},
	{group: "rbac.authorization.k8s.io", resource: "rolebindings"},
	{group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies"},
	{group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicybindings"},
	{group: "", resource: "namespaces"},
	{group: "", resource: "serviceaccounts"},
	{group: "apps", resource: "deployments"},
	{group: "policy", resource: "poddisruptionbudgets"},
}

// installation checks whether the user may install the operator, and whether it is already installed.
func (c *checker) installation(ctx context.Context) error {
	c.name = "Installation"
	var denied []string
	for _, r := range installedKinds {
		attributes := r.attributes("create")
		attributes.Namespace = c.namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		if err := c.client.Create(ctx, review); err != nil {
			return fmt.Errorf("check your permissions: %w", err)
		}
		if !review.Status.Allowed {
			denied = append(denied, r.resource)
		}
	}
	if len(denied) > 0 {
		c.fail("ask a cluster administrator to install the operator", "you may not create %s", strings.Join(denied, ", "))
	} else {
		c.ok("you may create all objects of an installation")
	}
	deployment, ok, err := c.readDeployment(ctx)
	switch {
	case !ok:
		return err
	case deployment != nil:
		c.warn("a new installation would upgrade it; to check the current one, run: "+c.program+" check", "the operator is already installed with image %s", imageOf(deployment))
	default:
		c.ok("no operator is installed in namespace %s", c.namespace)
	}
	return nil
}
