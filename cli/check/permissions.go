// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/settings"
)

// permission is what the operator does with a resource, or with one object.
type permission struct {
	authorizationv1.ResourceAttributes // without a verb
	verbs                              []string
	feature                            string // that needs it, or empty
}

// feature returns the name of the part of the operator that needs a role of the installation. It returns false if the operator's
// flags disable that part.
func (c *checker) feature(role string) (name string, enabled bool) {
	short := strings.TrimPrefix(role, "sidecar-termination-")
	for _, feature := range settings.Features() {
		if feature.Role == short {
			return feature.Name, feature.Enabled(c.settings.Capabilities.EnabledModes)
		}
	}
	switch short {
	case "manager-role":
		return "", true
	case "leader-election-role":
		return "leader election", c.settings.Lease.Name != ""
	case "manager-outcome-role":
		return "outcome of pods", true
	}
	return role, true
}

// permissions are the permissions that the operator needs by its flags, as the roles of the installation have them.
func (c *checker) permissions() ([]permission, error) {
	var all []permission
	add := func(file string, namespaces ...string) error {
		roles, err := config.Roles(file)
		for _, role := range roles {
			feature, enabled := c.feature(role.Name)
			for _, namespace := range namespaces {
				if enabled {
					all = append(all, permissionsOf(role.Rules, namespace, feature)...)
				}
			}
		}
		return err
	}
	file, namespaces := config.ManagerRoles, []string{""}
	if !c.readsCluster() {
		file, namespaces = config.NamespacedManagerRoles, c.settings.WatchNamespaces
		all = permissionsOf(c.optionalRules(), "", "")
	}
	if err := add(file, namespaces...); err != nil {
		return nil, err
	}
	return all, add(config.LeaderElectionRole, c.leaseNamespace())
}

// permissionsOf lists the permissions of rules in a namespace, or in the whole cluster.
func permissionsOf(rules []rbacv1.PolicyRule, namespace, feature string) []permission {
	var all []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, name := range names {
					all = append(all, permission{authorizationv1.ResourceAttributes{
						Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Name: name,
					}, rule.Verbs, feature})
				}
			}
		}
	}
	return all
}

// optionalRules are the rules for the whole cluster that an operator for single namespaces needs only with some flags.
func (c *checker) optionalRules() []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	if c.settings.NodeKindRules.All == "" {
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}})
	}
	if c.settings.Metrics.Authenticated {
		all = append(all,
			rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}})
	}
	return all
}

// checkPermissions asks the API server whether the operator's ServiceAccount has the permissions of its roles.
func (c *checker) checkPermissions(ctx context.Context) error {
	permissions, err := c.permissions()
	if err != nil {
		return err
	}
	account, total := "ServiceAccount "+c.account(), 0
	for _, p := range permissions {
		total += len(p.verbs)
	}
	missing, err := c.failDenied(ctx, permissions, c.ofOperator, "restore the operator's roles and bindings: "+c.reinstall(), account)
	switch {
	case apierrors.IsForbidden(err):
		c.warn("ask someone who may create subjectaccessreviews", "you may not check the permissions of %s", account)
	case err != nil:
		return err
	case !missing:
		c.ok("%s has all %d permissions that the operator needs", account, total)
	}
	return nil
}

// failDenied adds a failure for each permission that somebody lacks, and reports whether there is one.
func (c *checker) failDenied(ctx context.Context, permissions []permission, of review, hint, who string) (missing bool, err error) {
	for _, p := range permissions {
		denied, err := c.denied(ctx, p, of)
		if err != nil {
			return missing, err
		}
		if len(denied) > 0 {
			missing = true
			c.fail(hint, "%s may not %s", who, p.describe(denied))
		}
	}
	return missing, nil
}

// checkRoles finds rules that somebody has added to the operator's ClusterRoles. Missing ones are missing permissions.
func (c *checker) checkRoles(ctx context.Context) error {
	roles, err := config.Roles(config.ManagerRoles)
	if err != nil {
		return err
	}
	for _, role := range roles {
		var installed rbacv1.ClusterRole
		err := c.Client.Get(ctx, client.ObjectKey{Name: c.installedName(role.Name)}, &installed)
		switch {
		case c.unreadable(err, "ClusterRoles"):
			return nil
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("get ClusterRole: %w", err)
		}
		var added []string
		for _, rule := range installed.Rules {
			if !slices.ContainsFunc(role.Rules, func(shipped rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(shipped, rule) }) {
				for _, p := range permissionsOf([]rbacv1.PolicyRule{rule}, "", "") {
					added = append(added, p.describe(p.verbs))
				}
			}
		}
		if len(added) > 0 {
			c.warn("if this is not intended, restore it: "+c.reinstall(), "ClusterRole %s has rules that this version does not ship: %s", installed.Name, firstOf(added))
		}
	}
	return nil
}

// review asks the API server for one permission of somebody, and has the answer.
type review func(*authorizationv1.ResourceAttributes) (client.Object, *authorizationv1.SubjectAccessReviewStatus)

func ofUser(what *authorizationv1.ResourceAttributes) (client.Object, *authorizationv1.SubjectAccessReviewStatus) {
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	return r, &r.Status
}

func (c *checker) ofOperator(what *authorizationv1.ResourceAttributes) (client.Object, *authorizationv1.SubjectAccessReviewStatus) {
	namespace := c.deployment.Namespace
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + namespace + ":" + c.account(),
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: what,
	}}
	return r, &r.Status
}

// denied lists the verbs of a permission that somebody lacks.
func (c *checker) denied(ctx context.Context, p permission, of review) ([]string, error) {
	var denied []string
	for _, p.Verb = range p.verbs {
		object, status := of(&p.ResourceAttributes)
		if err := c.Client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("check permissions: %w", err)
		}
		if !status.Allowed {
			denied = append(denied, p.Verb)
		}
	}
	return denied, nil
}

func (p permission) describe(verbs []string) string {
	text := strings.Join(verbs, ", ") + " " + p.Resource
	if p.Subresource != "" {
		text += "/" + p.Subresource
	}
	if p.Group != "" {
		text += "." + p.Group
	}
	if p.Name != "" {
		text += " named " + p.Name
	}
	if p.Namespace != "" {
		text += " in namespace " + p.Namespace
	}
	if p.feature != "" {
		text += fmt.Sprintf(" (%s)", p.feature)
	}
	return text
}
