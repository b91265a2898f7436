// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// WithPolicies returns a source that reads the same with these policies applied. A policy replaces the one of its name, whose age it
// keeps, or is the youngest: precedence depends on that.
func (s *Source) WithPolicies(policies []client.Object) *Source {
	changed := *s
	changed.notes = slices.Clone(s.notes)
	changed.Reader = &withPolicies{Reader: s.Reader, policies: policies, now: metav1.NewTime(s.now)}
	return &changed
}

// withPolicies is a reader with applied policies.
type withPolicies struct {
	client.Reader
	policies []client.Object
	now      metav1.Time
}

// List lists the objects. A list of policies includes the applied ones.
func (r *withPolicies) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := r.Reader.List(ctx, into, options...); err != nil {
		return err
	}
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	switch list := into.(type) {
	case *v1alpha1.SidecarTerminationPolicyList:
		list.Items = apply(list.Items, r.policies, wanted.Namespace, r.now)
	case *v1alpha1.ClusterSidecarTerminationPolicyList:
		list.Items = apply(list.Items, r.policies, "", r.now)
	}
	return nil
}

// apply returns the items of a list with those policies of their type that are in the namespace. An empty namespace means all. It does
// not modify the items, which a reader may share.
func apply[T any, P interface {
	*T
	client.Object
}](items []T, policies []client.Object, namespace string, now metav1.Time) []T {
	items = slices.Clone(items)
	for _, object := range policies {
		policy, ok := object.(P)
		if !ok || namespace != "" && policy.GetNamespace() != namespace {
			continue
		}
		applied := *policy
		i := slices.IndexFunc(items, func(item T) bool { return client.ObjectKeyFromObject(P(&item)) == client.ObjectKeyFromObject(policy) })
		if i < 0 {
			P(&applied).SetCreationTimestamp(now)
			items = append(items, applied)
			continue
		}
		P(&applied).SetCreationTimestamp(P(&items[i]).GetCreationTimestamp())
		items[i] = applied
	}
	return items
}
