// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// policyName identifies a policy of either kind.
func policyName(r *explain.PolicyReport) string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// declared describes the sidecars that a policy declares.
func declared(r *explain.PolicyReport) []string {
	if r.IncludeInjected {
		return append(slices.Clone(r.Sidecars), "injected containers")
	}
	return r.Sidecars
}

// writePolicy writes the full report on one policy.
func writePolicy(p *output.Printer, r *explain.PolicyReport) {
	if r.Rejected {
		p.Line("%s: not enforced, because of its mistakes", policyName(r))
		p.Findings(r.Findings)
		return
	}
	p.Line("%s: mode %s, enforcement %s, priority %d", policyName(r), r.Mode, r.Enforcement, r.Priority)
	if len(declared(r)) > 0 {
		p.Prose("sidecars: ", strings.Join(declared(r), ", "))
	} else {
		p.Prose("main containers: ", strings.Join(r.Mains, ", ")+"; every other regular container is a sidecar")
	}
	for _, condition := range r.Conditions {
		p.Prose(fmt.Sprintf("%s %s (%s): ", condition.Type, condition.Status, condition.Reason), condition.Message)
	}
	if len(r.Pods) > 0 {
		var rows [][]string
		for _, pod := range r.Pods {
			stage, reason := stageText(pod.Stage, pod.Reason, pod.Planned)
			rows = append(rows, []string{pod.Namespace, strings.ToLower(pod.Kind) + "/" + pod.Name, strings.Join(pod.Sidecars, ", "), stage, reason})
		}
		p.Line("")
		p.Table([]string{"NAMESPACE", "POD", "SIDECARS", "STAGE", "REASON"}, rows)
	}
	writeFindings(p, r.Findings)
}
