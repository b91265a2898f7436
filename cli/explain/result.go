// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
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
	// brief selects one line for each requested object, and nothing is the line if there is none.
	brief   bool
	nothing string
	// offline leaves policies that select a pod out of the text, because the reports on the pods contain the same findings.
	offline bool
	// err is why some manifests could not be read.
	err error
}

func newResult() *result {
	return &result{Header: output.NewHeader("ExplainReport"), Pods: []explain.Report{}}
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
		if job.NotShown > 0 {
			p.Item("->", fmt.Sprintf("%d more pods are not shown; explain them by name:", job.NotShown), "",
				fmt.Sprintf("kubectl -n %s get pods -l %s=%s", job.Namespace, batchv1.JobNameLabel, job.Name))
		}
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
}

// writeBrief writes one line for each requested object. The line of a Job describes its pod with the worst finding.
func (r *result) writeBrief(p *output.Printer) {
	switch {
	case len(r.Policies) > 0:
		r.writeBriefPolicies(p)
	case len(r.Jobs) > 0:
		var rows []briefRow
		for _, job := range r.Jobs {
			if pod := r.worstOf(job); pod != nil {
				rows = append(rows, briefRowOf(pod, "job", job.Name))
			}
		}
		writeBriefTable(p, briefHeading, rows)
	case len(r.Pods) > 0:
		var rows []briefRow
		for i := range r.Pods {
			rows = append(rows, briefRowOf(&r.Pods[i], strings.ToLower(r.Pods[i].Kind), r.Pods[i].Name))
		}
		writeBriefTable(p, briefHeading, rows)
	default:
		p.Line("%s", r.nothing)
	}
}

// writeBriefTable writes the rows, and the command that shows what to do about the first one whose finding is the worst.
func writeBriefTable(p *output.Printer, heading []string, rows []briefRow) {
	var cells [][]string
	worst := briefRow{}
	for _, row := range rows {
		finding := ""
		if row.worst.WorseThan(explain.SeverityNote) {
			finding = strings.ToLower(string(row.worst)) + " " + string(row.reason)
		}
		cells = append(cells, append(append([]string{row.namespace, row.name}, row.cells...), finding))
		if row.worst.WorseThan(worst.worst) {
			worst = row
		}
	}
	p.Table(heading, cells)
	if !worst.worst.WorseThan(explain.SeverityNote) {
		return
	}
	command := settings.PluginName + " explain " + worst.name
	if worst.namespace != "" {
		command += " -n " + worst.namespace
	}
	p.Line("")
	p.Item("->", "see what to do about one of them:", "", command)
}

var briefHeading = []string{"NAMESPACE", "NAME", "RESTART", "SIDECARS", "STAGE", "REASON", "FINDING"}

// briefRow is the row of an object, with its first finding, which is the worst.
type briefRow struct {
	namespace, name string
	cells           []string
	worst           explain.Severity
	reason          v1alpha1.Reason
}

func newBriefRow(namespace, name string, findings []explain.Finding, cells ...string) briefRow {
	row := briefRow{namespace: namespace, name: name, cells: cells}
	if len(findings) > 0 {
		row.worst, row.reason = findings[0].Severity, findings[0].Reason
	}
	return row
}

// briefRowOf is the row of an object under briefHeading, with the report on one of its pods.
func briefRowOf(pod *explain.Report, kind, name string) briefRow {
	stage, reason := stageText(cmp.Or(pod.Stage, "-"), pod.Reason, pod.Planned)
	return newBriefRow(pod.Namespace, kind+"/"+name, pod.Findings, pod.RestartPolicy, sidecars(pod), stage, reason)
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
	var rows []briefRow
	for i := range r.Policies {
		policy, kind := &r.Policies[i], "policy"
		if policy.Namespace == "" {
			kind = "clusterpolicy"
		}
		named := strings.Join(declared(policy), ",")
		if named == "" {
			named = "all except " + strings.Join(policy.Mains, ",")
		}
		rows = append(rows, newBriefRow(policy.Namespace, kind+"/"+policy.Name, policy.Findings,
			policy.Mode, string(policy.Enforcement), named, strconv.Itoa(len(policy.Pods))))
	}
	writeBriefTable(p, []string{"NAMESPACE", "NAME", "MODE", "ENFORCEMENT", "SIDECARS", "PODS", "FINDING"}, rows)
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

// jobReport is the state of a Job.
type jobReport struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Status    batchv1.JobConditionType `json:"status"`
	// Active, Succeeded and Failed count pods, as the Job's status does.
	Active    int32 `json:"active"`
	Succeeded int32 `json:"succeeded"`
	Failed    int32 `json:"failed"`
	// NotShown counts the pods without a report.
	NotShown int `json:"notShown,omitempty"`
	// Reason and Message say why the Job failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// jobRunning is the status of a Job that is neither finished nor suspended. The others are types of conditions.
const jobRunning batchv1.JobConditionType = "Running"

func newJobReport(job *batchv1.Job) jobReport {
	report := jobReport{
		Namespace: job.Namespace, Name: job.Name, Status: jobRunning,
		Active: job.Status.Active, Succeeded: job.Status.Succeeded, Failed: job.Status.Failed,
	}
	condition := source.FinalCondition(job)
	switch {
	case condition != nil:
		report.Status = condition.Type
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		report.Status = batchv1.JobSuspended
	}
	if report.Status == batchv1.JobFailed {
		report.Reason, report.Message = condition.Reason, condition.Message
	}
	return report
}

// text describes the status in a line.
func (j jobReport) text() string {
	switch j.Status {
	case batchv1.JobSuspended:
		return "suspended"
	case batchv1.JobComplete:
		return "complete"
	case batchv1.JobFailed:
		return fmt.Sprintf("failed (%s): %s", j.Reason, j.Message)
	}
	return fmt.Sprintf("running: %d active, %d succeeded, %d failed", j.Active, j.Succeeded, j.Failed)
}
