// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	r := &result{Pods: []explain.Report{}, quiet: map[string]bool{}}
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
	r.Notes = s.Notes()
	if slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return !p.Template }) {
		r.Notes = append(r.Notes, "manifests do not tell whether OpenKruise is there, nor its requests: it is taken to be absent for pods that have run")
	}
	for _, refused := range manifests.Refused {
		r.Policies = append(r.Policies, explain.RefusedPolicy(refused.Policy, refused.Why))
	}
	for _, manifest := range manifests.Objects {
		policy, ok := source.PolicyOf(manifest.Object)
		if !ok {
			continue
		}
		by := selectedBy(policy.Ref, reports)
		report := explain.DescribePolicy(policy, by)
		r.Policies = append(r.Policies, report)
		if sayAll(by, policy.Ref, report.Findings) {
			r.quiet[policyName(&report)] = true
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

// sayAll reports whether the reports on what a policy selects say all that was found about it and is worse than a note.
func sayAll(reports []explain.Report, policy resolve.PolicyRef, found []explain.Finding) bool {
	for _, f := range found {
		said := func(known explain.Finding) bool {
			// A pod says first which policy it speaks of, and a policy which pod.
			return known.Reason == f.Reason && (known.Message == policy.String()+": "+f.Message || strings.HasSuffix(f.Message, ": "+known.Message))
		}
		if f.Severity != explain.SeverityNote &&
			!slices.ContainsFunc(reports, func(r explain.Report) bool { return slices.ContainsFunc(r.Findings, said) }) {
			return false
		}
	}
	return len(reports) > 0
}
