// SPDX-License-Identifier: Apache-2.0

package admissiontest

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Permissions are an author's permissions by namespace. Those of namespace "" hold everywhere.
type Permissions map[string][]rbacv1.PolicyRule

// Authorize says whether a rule permits the request, as RBAC does.
func (p Permissions) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	for _, namespace := range []string{"", request.GetNamespace()} {
		if slices.ContainsFunc(p[namespace], func(rule rbacv1.PolicyRule) bool { return permits(rule, request) }) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "no rule permits it", nil
}

func permits(rule rbacv1.PolicyRule, request authorizer.Attributes) bool {
	resource := request.GetResource()
	if request.GetSubresource() != "" {
		resource += "/" + request.GetSubresource()
	}
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return has(rule.Verbs, request.GetVerb()) && has(rule.APIGroups, request.GetAPIGroup()) && has(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, request.GetName()))
}
