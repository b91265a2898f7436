// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/cli/source"
)

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
