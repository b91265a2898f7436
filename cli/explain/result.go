// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	Summary  explain.Summary        `json:"summary"`
	Pods     []explain.Report       `json:"pods"`
	Policies []explain.PolicyReport `json:"policies,omitempty"`
	// Jobs has the requested Jobs, or those of a CronJob.
	Jobs []jobReport `json:"jobs,omitempty"`
	// Notes say what was assumed because it could not be read.
	Notes []string `json:"notes,omitempty"`
	// brief selects one line for each requested object.
	brief bool
	// offline leaves policies that select a pod out of the text, because the reports on the pods contain the same findings.
	offline bool
	// err is why some manifests could not be read.
	err error
}

func newResult() *result {
	return &result{Header: output.NewHeader("ExplainReport"), Pods: []explain.Report{}}
}

// findings returns the findings on all pods and policies.
func (r *result) findings() []explain.Finding {
	var all []explain.Finding
	for _, pod := range r.Pods {
		all = append(all, pod.Findings...)
	}
	for _, policy := range r.Policies {
		all = append(all, policy.Findings...)
	}
	return all
}

func (r *result) text(p *output.Printer) {
	if r.brief {
		r.writeBrief(p)
	} else {
		r.writeFull(p)
	}
	for _, note := range r.Notes {
		p.Note(note)
	}
}

func (r *result) writeFull(p *output.Printer) {
	for _, job := range r.Jobs {
		p.Line("Job %s/%s: %s", job.Namespace, job.Name, job.text())
	}
	for i := range r.Pods {
		writeReport(p, &r.Pods[i])
		p.Line("")
	}
	for i := range r.Policies {
		if policy := &r.Policies[i]; !r.offline || !policy.Selects {
			writePolicy(p, policy)
			p.Line("")
		}
	}
	if len(r.Pods)+len(r.Jobs)+len(r.Policies) == 0 {
		p.Line("No pods, Jobs, CronJobs or policies found.")
	}
}

// writeBrief writes one line for each requested object. The line of a Job describes its pod with the worst finding.
func (r *result) writeBrief(p *output.Printer) {
	switch {
	case len(r.Policies) > 0:
		r.writeBriefPolicies(p)
	case len(r.Jobs) > 0:
		var rows [][]string
		for _, job := range r.Jobs {
			if pod := r.worstOf(job); pod != nil {
				rows = append(rows, briefRow(pod, "job", job.Name))
			}
		}
		p.Table(briefHeading, rows)
	case len(r.Pods) > 0:
		var rows [][]string
		for i := range r.Pods {
			rows = append(rows, briefRow(&r.Pods[i], strings.ToLower(r.Pods[i].Kind), r.Pods[i].Name))
		}
		p.Table(briefHeading, rows)
	default:
		p.Line("No unfinished objects of this type found.")
	}
}

var briefHeading = []string{"NAMESPACE", "NAME", "RESTART", "SIDECARS", "STAGE", "REASON", "FINDING"}

// briefRow is the row of an object under briefHeading, with the report on one of its pods.
func briefRow(pod *explain.Report, kind, name string) []string {
	stage, reason := stageText(cmp.Or(pod.Stage, "-"), pod.Reason, pod.Planned)
	return []string{pod.Namespace, kind + "/" + name, pod.RestartPolicy, sidecars(pod), stage, reason, briefFinding(pod.Findings)}
}

// worstOf returns the report on the Job's pod with the worst finding, or on the Job's template.
func (r *result) worstOf(job jobReport) *explain.Report {
	var worst *explain.Report
	for i := range r.Pods {
		pod := &r.Pods[i]
		ofJob := pod.Job == job.Name || pod.Template && pod.Name == job.Name
		if ofJob && pod.Namespace == job.Namespace &&
			(worst == nil || explain.Worst(pod.Findings).WorseThan(explain.Worst(worst.Findings))) {
			worst = pod
		}
	}
	return worst
}

func (r *result) writeBriefPolicies(p *output.Printer) {
	var rows [][]string
	for i := range r.Policies {
		policy, kind := &r.Policies[i], "policy"
		if policy.Namespace == "" {
			kind = "clusterpolicy"
		}
		named := strings.Join(declared(policy), ",")
		if named == "" {
			named = "all except " + strings.Join(policy.Mains, ",")
		}
		rows = append(rows, []string{policy.Namespace, kind + "/" + policy.Name, policy.Mode, string(policy.Enforcement), named,
			strconv.Itoa(len(policy.Pods)), briefFinding(policy.Findings)})
	}
	p.Table([]string{"NAMESPACE", "NAME", "MODE", "ENFORCEMENT", "SIDECARS", "PODS", "FINDING"}, rows)
}

func sidecars(r *explain.Report) string {
	var names []string
	for _, container := range r.Containers {
		if container.Role == resolve.RoleSidecar {
			names = append(names, container.Name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

// briefFinding names the worst finding, unless it is a note.
func briefFinding(findings []explain.Finding) string {
	if len(findings) == 0 || findings[0].Severity == explain.SeverityNote {
		return ""
	}
	return strings.ToLower(string(findings[0].Severity)) + " " + string(findings[0].Reason)
}
