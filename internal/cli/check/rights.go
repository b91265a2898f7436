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
	"github.com/sidecar-termination/operator/internal/pulljob"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// right is something that somebody must be allowed to do.
type right struct {
	use       use // that needs it; empty for all
	group     string
	resource  string // with its subresource
	name      string // where the right is to one object
	namespace string // where the right is to one namespace, and not to the whole cluster
	verbs     []string
}

// use is a part of the operator that can be turned off.
type use string

const (
	useCRR      = use("mode " + v1alpha1.ModeCRR)
	useImage    = use("mode " + v1alpha1.ModeImage)
	usePodPhase = use("mode " + v1alpha1.ModePodPhase)
	usePrePull  = use("pre-pull")
	useLease    = use("leader election")
)

var (
	// follow is what a cache needs.
	follow = []string{"list", "watch"}

	// rights are what the operator must be allowed to do in the whole cluster. A test holds them to config/rbac/role.yaml.
	rights = []right{
		{group: "", resource: "namespaces", verbs: follow},
		{group: "", resource: "nodes", verbs: follow},
		{group: "", resource: "pods", verbs: []string{"get", "list", "watch"}},
		{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}},
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}},
		{group: v1alpha1.GroupName, resource: "sidecarterminationpolicies", verbs: follow},
		{group: v1alpha1.GroupName, resource: "clustersidecarterminationpolicies", verbs: follow},
		{group: v1alpha1.GroupName, resource: "sidecarterminationpolicies/status", verbs: []string{"update"}},
		{group: v1alpha1.GroupName, resource: "clustersidecarterminationpolicies/status", verbs: []string{"update"}},
		{use: useCRR, group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: crr.DefinitionName, verbs: follow},
		{use: useCRR, group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", name: crr.WebhookConfigurationName, verbs: follow},
		{use: useCRR, group: "apps.kruise.io", resource: "containerrecreaterequests", verbs: []string{"list", "watch", "create", "delete"}},
		{use: useImage, group: "", resource: "pods", verbs: []string{"patch"}},
		{use: usePodPhase, group: "", resource: "pods/status", verbs: []string{"patch"}},
		{use: usePrePull, group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: pulljob.DefinitionName, verbs: follow},
		{use: usePrePull, group: "apps.kruise.io", resource: "imagepulljobs", verbs: []string{"list", "watch", "create", "delete"}},
	}
)

// leaseRights are what the copies of the operator must be allowed to do in the namespace of the lease with the name, to agree
// on which of them acts. A test holds them to config/rbac/leader_election_role.yaml.
func leaseRights(namespace, name string) []right {
	return []right{
		{use: useLease, group: "coordination.k8s.io", resource: "leases", namespace: namespace, verbs: []string{"create"}},
		{use: useLease, group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: name, verbs: []string{"get", "update"}},
		{use: useLease, group: "", resource: "events", namespace: namespace, verbs: []string{"create", "patch"}},
	}
}

// operatorRights asks the API server about the operator's service account.
func (c *checker) operatorRights(ctx context.Context) error {
	deployment, err := c.Operator(ctx)
	switch {
	case c.unreadable(err, "Deployments in namespace "+c.namespace):
		return nil
	case err != nil:
		return err
	case deployment == nil:
		c.warn(installHint, "without an operator there is no service account to ask about")
		return nil
	}
	account := serviceAccount{deployment.Namespace, cmp.Or(deployment.Spec.Template.Spec.ServiceAccountName, "default")}
	total, missing := 0, 0
	for _, r := range slices.Concat(rights, leaseRights(c.leaseNamespace(deployment), c.settings.Lease.Name)) {
		if c.isDisabled(r.use) {
			continue
		}
		denied, err := c.denied(ctx, account, r)
		if apierrors.IsForbidden(err) {
			c.warn("ask someone who may create subjectaccessreviews", "you may not ask what service account %s may do", account.name)
			return nil
		}
		if err != nil {
			return err
		}
		total += len(r.verbs)
		if len(denied) > 0 {
			missing++
			c.fail("restore the operator's roles and bindings: kubectl apply -k config/rbac", "service account %s may not %s", account.name, r.describe(denied))
		}
	}
	if missing == 0 {
		c.ok("service account %s may do all that the operator needs (%d rights)", account.name, total)
	}
	return nil
}

type serviceAccount struct{ namespace, name string }

// denied lists the verbs of the right that the service account may not use.
func (c *checker) denied(ctx context.Context, account serviceAccount, r right) ([]string, error) {
	var denied []string
	for _, verb := range r.verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + account.namespace + ":" + account.name,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + account.namespace, "system:authenticated"},
			ResourceAttributes: r.attributes(verb),
		}}
		if err := c.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("ask what the operator may do: %w", err)
		}
		if !review.Status.Allowed {
			denied = append(denied, verb)
		}
	}
	return denied, nil
}

func (c *checker) isDisabled(u use) bool {
	capabilities := c.settings.Capabilities
	switch u {
	case useCRR:
		return capabilities.CRRDisabled
	case useImage:
		return capabilities.ImageDisabled
	case usePodPhase:
		return !capabilities.PodPhase.Allowed()
	case usePrePull:
		return c.settings.PrePullDisabled
	case useLease:
		return c.settings.Lease.Name == ""
	}
	return false
}

func (r right) attributes(verb string) *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	return &authorizationv1.ResourceAttributes{
		Namespace: r.namespace, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name, Verb: verb,
	}
}

func (r right) describe(verbs []string) string {
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
	if r.use != "" {
		text += fmt.Sprintf(" (%s)", r.use)
	}
	return text
}

// installed are the kinds of objects that an installation creates. A test holds them to config/default.
var installed = []right{
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

// installation asks whether the user may install, and whether something is installed already.
func (c *checker) installation(ctx context.Context) error {
	var denied []string
	for _, r := range installed {
		attributes := r.attributes("create")
		attributes.Namespace = c.namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		if err := c.client.Create(ctx, review); err != nil {
			return fmt.Errorf("ask what you may do: %w", err)
		}
		if !review.Status.Allowed {
			denied = append(denied, r.resource)
		}
	}
	if len(denied) > 0 {
		c.fail("have someone install it who is an administrator of the cluster", "you may not create %s", strings.Join(denied, ", "))
	} else {
		c.ok("you may create all that an installation consists of")
	}
	deployment, err := c.Operator(ctx)
	switch {
	case c.unreadable(err, "Deployments in namespace "+c.namespace):
	case err != nil:
		return err
	case deployment != nil:
		c.warn("an installation upgrades it; to look it over: "+c.program+" check", "the operator is installed already, with image %s", imageOf(deployment))
	default:
		c.ok("no operator is installed in namespace %s", c.namespace)
	}
	return nil
}
