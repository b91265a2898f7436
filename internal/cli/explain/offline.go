// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// runOffline explains every object of the manifests.
func (o *options) runOffline(cmd *cobra.Command) error {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return err
	}
	s, err := manifests.Source(o.operator, cmd.Flags())
	if err != nil {
		return err
	}
	r, err := offline(cmd.Context(), s, manifests)
	if err != nil {
		return err
	}
	if err := r.write(cmd.OutOrStdout(), o.format); err != nil {
		return err
	}
	return o.failOn.Judge(r.worst())
}

// selected is a report and the policies that select what it is about.
type selected struct {
	explain.Report
	policies []resolve.Policy
}

func offline(ctx context.Context, s *source.Source, manifests source.Manifests) (*result, error) {
	r := &result{Pods: []explain.Report{}, Notes: s.Notes(), quiet: map[string]bool{}}
	var reports []selected
	for _, manifest := range manifests.Objects {
		pod, ok, err := s.Manifest(ctx, manifest)
		if err != nil {
			return nil, err
		}
		if ok {
			report := s.Explain(pod)
			reports = append(reports, selected{report, pod.Policies})
			r.Pods = append(r.Pods, report)
		}
	}
	if slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return !p.Template }) {
		r.Notes = append(r.Notes, "manifests do not tell whether OpenKruise is there, nor its requests: it is taken to be absent for pods that have run")
	}
	for _, refused := range manifests.Refused {
		r.Policies = append(r.Policies, explain.RefusedPolicy(refused.Policy, refused.Why))
	}
	for _, manifest := range manifests.Objects {
		policy, ok := policyOf(manifest.Object)
		if !ok {
			continue
		}
		by := selectedBy(policy.Ref, reports)
		report := explain.DescribePolicy(policy, by)
		r.Policies = append(r.Policies, report)
		// What a policy that selects something comes to shows in the reports on what it selects.
		if r.quiet[report.Kind+"/"+report.Namespace+"/"+report.Name] = policy.Invalid == nil; len(by) == 0 && policy.Invalid == nil {
			r.Notes = append(r.Notes, policyName(&report)+" selects none of the pods of these manifests")
		}
	}
	return r, nil
}

func selectedBy(ref resolve.PolicyRef, reports []selected) []explain.Report {
	var by []explain.Report
	for _, report := range reports {
		if slices.ContainsFunc(report.policies, func(p resolve.Policy) bool { return p.Ref == ref }) {
			by = append(by, report.Report)
		}
	}
	return by
}

// policyOf returns the policy that the object is, and false for any other object.
func policyOf(object client.Object) (explain.Policy, bool) {
	switch policy := object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		parsed, invalid := resolve.FromNamespaced(policy)
		return explain.Policy{
			Ref:  resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: policy.Namespace, Name: policy.Name},
			Spec: &policy.Spec.PolicySpec, Conditions: policy.Status.Conditions, Invalid: invalid, Flaw: parsed.Flaw(),
		}, true
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		parsed, invalid := resolve.FromCluster(policy)
		return explain.Policy{
			Ref:  resolve.PolicyRef{Kind: resolve.KindCluster, Name: policy.Name},
			Spec: &policy.Spec.PolicySpec, Conditions: policy.Status.Conditions, Invalid: invalid, Flaw: parsed.Flaw(),
		}, true
	}
	return explain.Policy{}, false
}
