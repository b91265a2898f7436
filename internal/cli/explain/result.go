// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"io"
	"strconv"
	"strings"

	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// result is everything that was found. Its JSON form is what programs read.
type result struct {
	Pods     []explain.Report       `json:"pods"`
	Policies []explain.PolicyReport `json:"policies,omitempty"`
	// Jobs say how the Jobs that were asked about, or those of a CronJob, fare.
	Jobs []jobLine `json:"jobs,omitempty"`
	// Notes say what was assumed because it could not be read.
	Notes []string `json:"notes,omitempty"`
	// brief has one line written for each object that was asked about.
	brief bool
	// quiet has the names of policies that are left out of text, because the pods' reports say all there is to say.
	quiet map[string]bool
}

// jobLine is a Job in one line.
type jobLine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Status    string `json:"status"`
}

// worst returns the severity of the worst finding.
func (r *result) worst() explain.Severity {
	var all []explain.Finding
	for _, pod := range r.Pods {
		all = append(all, pod.Findings...)
	}
	for _, policy := range r.Policies {
		all = append(all, policy.Findings...)
	}
	return explain.Worst(all)
}

func (r *result) write(w io.Writer, format output.Format) error {
	return format.Write(w, r, r.text)
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
		p.Line("Job %s/%s: %s", job.Namespace, job.Name, job.Status)
	}
	for i := range r.Pods {
		writeReport(p, &r.Pods[i])
		p.Line("")
	}
	for i := range r.Policies {
		if policy := &r.Policies[i]; !r.quiet[policyName(policy)] {
			writePolicy(p, policy)
			p.Line("")
		}
	}
	if len(r.Pods)+len(r.Jobs)+len(r.Policies) == 0 {
		p.Line("Nothing to explain: no pod, no Job, no CronJob and no policy was found.")
	}
}

// writeBrief writes one line for each object that was asked about: for a Job that of its pods that fares worst.
func (r *result) writeBrief(p *output.Printer) {
	switch {
	case len(r.Policies) > 0:
		r.writeBriefPolicies(p)
	case len(r.Jobs) > 0:
		var rows [][]output.Cell
		for _, job := range r.Jobs {
			if pod := r.worstOf(job); pod != nil {
				rows = append(rows, briefRow(pod, kindJob, job.Name))
			}
		}
		p.Table(briefHeading, rows)
	case len(r.Pods) > 0:
		var rows [][]output.Cell
		for i := range r.Pods {
			rows = append(rows, briefRow(&r.Pods[i], kind(strings.ToLower(r.Pods[i].Kind)), r.Pods[i].Name))
		}
		p.Table(briefHeading, rows)
	default:
		p.Line("Nothing to explain: no unfinished object of that kind was found.")
	}
}

var briefHeading = []string{"NAMESPACE", "NAME", "RESTART", "SIDECARS", "STAGE", "REASON", "FINDING"}

// briefRow is a line under briefHeading about the object, whose pods are as the one of the report.
func briefRow(pod *explain.Report, of kind, name string) []output.Cell {
	row := output.Cells(pod.Namespace, string(of)+"/"+name, pod.RestartPolicy, sidecars(pod), string(cmp.Or(pod.Stage, "-")), string(pod.StageReason), briefFinding(pod.Findings))
	row[4].Style = stageStyles[pod.Stage]
	return row
}

// worstOf returns the report with the worst finding of those on the Job's pods, or that on its template.
func (r *result) worstOf(job jobLine) *explain.Report {
	var worst *explain.Report
	for i := range r.Pods {
		pod := &r.Pods[i]
		ofJob := pod.Owner == job.Name || pod.Template && pod.Name == job.Name
		if ofJob && pod.Namespace == job.Namespace &&
			(worst == nil || explain.Worst(pod.Findings).WorseThan(explain.Worst(worst.Findings))) {
			worst = pod
		}
	}
	return worst
}

func (r *result) writeBriefPolicies(p *output.Printer) {
	var rows [][]output.Cell
	for i := range r.Policies {
		policy, of := &r.Policies[i], kindPolicy
		if policy.Namespace == "" {
			of = kindClusterPolicy
		}
		named := strings.Join(policy.Sidecars, ",")
		if len(policy.Mains) > 0 {
			named = "all but " + strings.Join(policy.Mains, ",")
		}
		rows = append(rows, output.Cells(policy.Namespace, string(of)+"/"+policy.Name, string(policy.Mode), string(policy.Enforcement), named,
			strconv.Itoa(len(policy.Pods)), briefFinding(policy.Findings)))
	}
	p.Table([]string{"NAMESPACE", "NAME", "MODE", "ENFORCEMENT", "SIDECARS", "PODS", "FINDING"}, rows)
}

func sidecars(r *explain.Report) string {
	var names []string
	for _, container := range r.Containers {
		if container.Role == explain.RoleSidecar {
			names = append(names, container.Name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

// briefFinding names the worst finding, unless it is only good to know.
func briefFinding(findings []explain.Finding) string {
	if len(findings) == 0 || findings[0].Severity == explain.SeverityNote {
		return ""
	}
	return strings.ToLower(string(findings[0].Severity)) + " " + string(findings[0].Reason)
}
