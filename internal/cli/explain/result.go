// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"io"
	"strings"

	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// result is everything that was found. Its JSON form is what programs read.
type result struct {
	Pods     []explain.Report       `json:"pods"`
	Policies []explain.PolicyReport `json:"policies,omitempty"`
	// Jobs say how the Jobs that were asked about fare.
	Jobs []jobLine `json:"jobs,omitempty"`
	// Notes say what was assumed because it could not be read.
	Notes []string `json:"notes,omitempty"`
	// brief has one line written for each pod.
	brief bool
	// quiet lists the policies that are left out of text, because the pods' reports say all there is to say.
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
		p.Prose(p.Styled(output.Faint, "note: "), len("note: "), note)
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
		if policy := &r.Policies[i]; !r.quiet[policy.Kind+"/"+policy.Namespace+"/"+policy.Name] {
			writePolicy(p, policy)
			p.Line("")
		}
	}
	if len(r.Pods)+len(r.Jobs) == 0 && len(r.quiet) == len(r.Policies) {
		p.Line("Nothing to explain: no pod, no Job and no CronJob was found.")
	}
}

func (r *result) writeBrief(p *output.Printer) {
	if len(r.Pods)+len(r.Policies) == 0 {
		p.Line("Nothing to explain: no unfinished object of that kind was found.")
		return
	}
	var rows [][]output.Cell
	for i := range r.Pods {
		pod := &r.Pods[i]
		row := output.Cells(pod.Namespace, briefName(pod), pod.RestartPolicy, sidecars(pod), string(cmp.Or(pod.Stage, "-")), string(pod.StageReason), briefFinding(pod.Findings))
		row[4].Style = stageStyles[pod.Stage]
		rows = append(rows, row)
	}
	for _, policy := range r.Policies {
		rows = append(rows, output.Cells(policy.Namespace, "policy/"+policy.Name, "", strings.Join(policy.Sidecars, ","), string(policy.Enforcement), "", briefFinding(policy.Findings)))
	}
	p.Table([]string{"NAMESPACE", "NAME", "RESTART", "SIDECARS", "STAGE", "REASON", "FINDING"}, rows)
}

func briefName(r *explain.Report) string {
	return strings.ToLower(r.Kind) + "/" + r.Name
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
