// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podReport is the report on a pod and the policies that select it.
type podReport struct {
	explain.Report
	policies []resolve.Policy
}

// selectedBy returns the reports on the pods that the policy selects.
func selectedBy(ref resolve.PolicyRef, reports []podReport) []explain.Report {
	var selected []explain.Report
	for _, report := range reports {
		if slices.ContainsFunc(report.policies, func(p resolve.Policy) bool { return p.Ref == ref }) {
			selected = append(selected, report.Report)
		}
	}
	return selected
}

// policy explains one policy and the unfinished pods that it selects.
func (l *live) policy(ctx context.Context, r *result, of workload) error {
	var object client.Object = &v1alpha1.SidecarTerminationPolicy{}
	key := l.key(of.name)
	if of.kind == kindClusterPolicy {
		object, key = &v1alpha1.ClusterSidecarTerminationPolicy{}, client.ObjectKey{Name: of.name}
	}
	if err := l.Client.Get(ctx, key, object); err != nil {
		return fmt.Errorf("get policy: %w", err)
	}
	return l.addPolicies(ctx, r, object.GetNamespace(), []client.Object{object})
}

// listPolicies explains every policy of the kind.
func (l *live) listPolicies(ctx context.Context, r *result, of kind) error {
	var objects []client.Object
	if of == kindClusterPolicy {
		var list v1alpha1.ClusterSidecarTerminationPolicyList
		if err := l.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list cluster policies: %w", err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		return l.addPolicies(ctx, r, "", objects)
	}
	var list v1alpha1.SidecarTerminationPolicyList
	if err := l.Client.List(ctx, &list, client.InNamespace(l.namespace)); err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return l.addPolicies(ctx, r, l.namespace, objects)
}

// addPolicies explains the policies. It reads each unfinished pod of the namespace once.
func (l *live) addPolicies(ctx context.Context, r *result, namespace string, objects []client.Object) error {
	pods, err := l.UnfinishedPods(ctx, namespace)
	if err != nil {
		return err
	}
	var reports []podReport
	var all []explain.Pod
	for i := range pods {
		pod, err := l.source.Pod(ctx, &pods[i], nil)
		if err != nil {
			return err
		}
		if namespace == "" && !r.brief {
			if err := l.source.AddNamespaceLabels(ctx, &pod); err != nil {
				return err
			}
		}
		if all = append(all, pod); len(pod.Policies) > 0 {
			reports = append(reports, podReport{l.source.Explain(pod), pod.Policies})
		}
	}
	if r.brief {
		all = nil // one line says only that no pod matches
	}
	for _, object := range objects {
		policy, _ := source.PolicyOf(object)
		report := describePolicy(policy, selectedBy(policy.Ref, reports), all)
		report.AddNotWatched(l.source.Settings.Decisions)
		r.Policies = append(r.Policies, report)
	}
	return nil
}

// describePolicy reports on a policy, given the reports on the pods that it selects. If it selects none, the report names the nearest
// of all pods.
func describePolicy(policy explain.Policy, selected []explain.Report, all []explain.Pod) explain.PolicyReport {
	report := explain.DescribePolicy(policy, selected)
	if len(selected) == 0 && policy.Invalid == nil {
		report.AddNearest(policy.Parsed, all)
	}
	return report
}
