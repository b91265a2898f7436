// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// mains names the main containers of a policy that names no sidecars, and where pods list theirs.
func mains(r *explain.PolicyReport) []string {
	if r.MainsFrom == "" {
		return r.Mains
	}
	return append(slices.Clone(r.Mains), "those in annotation "+r.MainsFrom)
}

// writePolicy writes the full report on one policy.
func writePolicy(p *output.Printer, r *explain.PolicyReport) {
	if r.Rejected {
		p.StyledLine(output.Bold, policyName(r)+": not enforced, the API server would reject it")
		p.Findings(r.Findings)
		return
	}
	p.StyledLine(output.Bold, fmt.Sprintf("%s: mode %s, enforcement %s, priority %d", policyName(r), r.Mode, r.Enforcement, r.Priority))
	if len(r.Sidecars) > 0 {
		p.Prose(output.Cells("sidecars: "), strings.Join(r.Sidecars, ", "))
	} else {
		p.Prose(output.Cells("main containers: "), strings.Join(mains(r), ", ")+"; every other regular container is a sidecar")
	}
	for _, condition := range r.Conditions {
		style := output.Green
		if (condition.Type == "Ready") != (condition.Status == metav1.ConditionTrue) {
			style = output.Red
		}
		head := fmt.Sprintf("%s %s (%s): ", condition.Type, condition.Status, condition.Reason)
		p.Prose([]output.Cell{{Text: head, Style: style}}, condition.Message)
	}
	if len(r.Pods) > 0 {
		var rows [][]output.Cell
		for _, pod := range r.Pods {
			stage, reason := stageCells(pod.Stage, pod.Reason, pod.Planned)
			row := output.Cells(pod.Namespace, strings.ToLower(pod.Kind)+"/"+pod.Name, strings.Join(pod.Sidecars, ", "))
			rows = append(rows, append(row, stage, reason))
		}
		p.Line("")
		p.Table([]string{"NAMESPACE", "POD", "SIDECARS", "STAGE", "REASON"}, rows)
	}
	if len(r.Findings) > 0 {
		p.Line("")
		p.StyledLine(output.Bold, "FINDINGS")
		p.Findings(r.Findings)
	}
}
