// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// runOffline explains every object in the manifests.
func (o *options) runOffline(cmd *cobra.Command) error {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return err
	}
	s, err := manifests.Source(o.program, cmd.Flags())
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

func offline(ctx context.Context, s *source.Source, manifests source.Manifests) (*result, error) {
	r := newResult()
	var reports []podReport
	var pods []explain.Pod
	for _, manifest := range manifests.Objects {
		pod, ok, err := s.Manifest(ctx, manifest)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := s.AddNotSelecting(ctx, &pod); err != nil {
			return nil, err
		}
		pods = append(pods, pod)
		report := s.Explain(pod)
		reports = append(reports, podReport{report, pod.Policies})
		r.Pods = append(r.Pods, report)
	}
	r.Notes = s.Notes()
	if slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return !p.Template }) {
		r.Notes = append(r.Notes, "manifests do not show whether OpenKruise is installed: it is assumed to be absent for pods that have run")
	}
	for _, rejected := range manifests.Rejected {
		r.Policies = append(r.Policies, explain.RejectedPolicy(rejected.Policy, rejected.Errors))
	}
	for _, manifest := range manifests.Objects {
		policy, ok := source.PolicyOf(manifest.Object)
		if !ok {
			continue
		}
		by := selectedBy(policy.Ref, reports)
		report := describePolicy(policy, by, pods)
		report.AddNotWatched(s.Settings.Decisions)
		r.Policies = append(r.Policies, report)
		if containAll(by, policy.Ref, report.Findings) {
			r.omitted[policyName(&report)] = true
		}
	}
	return r, nil
}

// containAll reports whether the reports on the selected pods contain all findings on the policy that are worse than a note.
func containAll(reports []explain.Report, policy resolve.PolicyRef, found []explain.Finding) bool {
	for _, f := range found {
		same := func(known explain.Finding) bool {
			// The message of a pod may start with the policy, and the message of a policy with the pod.
			return known.Reason == f.Reason && (known.Message == policy.String()+": "+f.Message || strings.HasSuffix(f.Message, ": "+known.Message))
		}
		if f.Severity != explain.SeverityNote &&
			!slices.ContainsFunc(reports, func(r explain.Report) bool { return slices.ContainsFunc(r.Findings, same) }) {
			return false
		}
	}
	return len(reports) > 0
}
