// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/cli/source"
)

// jobReport is the state of a Job.
type jobReport struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Status    jobStatus `json:"status"`
	// Active, Succeeded and Failed count pods, as the Job's status does.
	Active    int32 `json:"active"`
	Succeeded int32 `json:"succeeded"`
	Failed    int32 `json:"failed"`
	// Reason and Message say why the Job failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type jobStatus string

// The statuses of Jobs.
const (
	jobRunning   jobStatus = "Running"
	jobSuspended jobStatus = "Suspended"
	jobComplete  jobStatus = "Complete"
	jobFailed    jobStatus = "Failed"
)

func newJobReport(job *batchv1.Job) jobReport {
	report := jobReport{
		Namespace: job.Namespace, Name: job.Name, Status: jobRunning,
		Active: job.Status.Active, Succeeded: job.Status.Succeeded, Failed: job.Status.Failed,
	}
	switch condition := source.FinalCondition(job); {
	case condition == nil && job.Spec.Suspend != nil && *job.Spec.Suspend:
		report.Status = jobSuspended
	case condition == nil:
	case condition.Type == batchv1.JobComplete:
		report.Status = jobComplete
	default:
		report.Status, report.Reason, report.Message = jobFailed, condition.Reason, condition.Message
	}
	return report
}

// text describes the status in a line.
func (j jobReport) text() string {
	switch j.Status {
	case jobSuspended:
		return "suspended"
	case jobComplete:
		return "complete"
	case jobFailed:
		return fmt.Sprintf("failed (%s): %s", j.Reason, j.Message)
	}
	return fmt.Sprintf("running: %d active, %d succeeded, %d failed", j.Active, j.Succeeded, j.Failed)
}
