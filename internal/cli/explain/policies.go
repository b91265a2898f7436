// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// policy explains one policy by the unfinished pods that it selects.
func (l *live) policy(ctx context.Context, r *result, of subject) error {
	var object client.Object = &v1alpha1.SidecarTerminationPolicy{}
	key := l.key(of.name)
	if of.kind == kindClusterPolicy {
		object, key = &v1alpha1.ClusterSidecarTerminationPolicy{}, client.ObjectKey{Name: of.name}
	}
	if err := l.Client.Get(ctx, key, object); err != nil {
		return fmt.Errorf("get policy: %w", err)
	}
	pods, err := l.Unfinished(ctx, object.GetNamespace())
	if err != nil {
		return err
	}
	return l.addPolicy(ctx, r, object, pods)
}

func (l *live) allPolicies(ctx context.Context, r *result, of kind) error {
	var objects []client.Object
	if of == kindClusterPolicy {
		var list v1alpha1.ClusterSidecarTerminationPolicyList
		if err := l.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list cluster policies: %w", err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	} else {
		var list v1alpha1.SidecarTerminationPolicyList
		if err := l.Client.List(ctx, &list, client.InNamespace(l.namespace)); err != nil {
			return fmt.Errorf("list policies: %w", err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	namespace := l.namespace
	if of == kindClusterPolicy {
		namespace = ""
	}
	pods, err := l.Unfinished(ctx, namespace)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := l.addPolicy(ctx, r, object, pods); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) addPolicy(ctx context.Context, r *result, object client.Object, pods []corev1.Pod) error {
	policy, _ := source.PolicyOf(object)
	var reports []explain.Report
	for i := range pods {
		if ns := object.GetNamespace(); ns != "" && ns != pods[i].Namespace {
			continue
		}
		pod, err := l.look.Pod(ctx, &pods[i], nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(pod.Policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref }) {
			reports = append(reports, l.look.Explain(pod))
		}
	}
	r.Policies = append(r.Policies, explain.DescribePolicy(policy, reports))
	return nil
}
