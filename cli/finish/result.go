// SPDX-License-Identifier: Apache-2.0

package finish

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// outcome is the result for a pod.
type outcome string

const (
	// finished means that the pod was written, or would be with a dry run.
	finished outcome = "Finished"
	// unchanged means that there is nothing to do.
	unchanged outcome = "Unchanged"
	// refused means that the sidecars must not be ended, and failed that an API call failed.
	refused outcome = "Refused"
	failed  outcome = "Failed"
)

// maxMessage bounds a message in a line. Names of containers are long in pods of others.
const maxMessage = 600

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	DryRun  dryRun      `json:"dryRun"`
	Summary summary     `json:"summary"`
	Pods    []podResult `json:"pods"`
	// Notes say what was assumed because it could not be read, and which events are missing.
	Notes []string `json:"notes,omitempty"`
}

// summary counts the pods by outcome.
type summary struct {
	Finished  int `json:"finished"`
	Unchanged int `json:"unchanged"`
	Refused   int `json:"refused"`
	Failed    int `json:"failed"`
}

// podResult is the outcome for one pod.
type podResult struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Outcome   outcome       `json:"outcome"`
	Mode      v1alpha1.Mode `json:"mode"`
	// Phase is the phase that mode PodPhase writes, and Sidecars are the containers that end.
	Phase    corev1.PodPhase `json:"phase,omitempty"`
	Sidecars []string        `json:"sidecars,omitempty"`
	Reason   v1alpha1.Reason `json:"reason,omitempty"`
	Message  string          `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
}

// describe describes a decision that is carried out.
func (r *podResult) describe(decision plan.Decision) {
	r.Outcome, r.Reason, r.Message = finished, v1alpha1.ReasonFinishedByUser, decision.Message
	for _, write := range decision.Writes {
		r.Sidecars = append(r.Sidecars, write.Containers...)
		if write.Mark != nil {
			r.Phase = write.Mark.Phase()
			r.Message += ", with phase " + string(r.Phase)
		}
	}
	if decision.Restarts > 0 {
		r.Message += fmt.Sprintf("; up to %d restarts count towards the backoffLimit of the Job", decision.Restarts)
	}
}

func (r *result) add(pod podResult) {
	r.Pods = append(r.Pods, pod)
	counts := map[outcome]*int{
		finished: &r.Summary.Finished, unchanged: &r.Summary.Unchanged, refused: &r.Summary.Refused, failed: &r.Summary.Failed,
	}
	*counts[pod.Outcome]++
}

func (r *result) note(text string) {
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// judge returns the error for the exit code.
func (r *result) judge() error {
	switch {
	case r.Summary.Failed > 0:
		return fmt.Errorf("%d of %d pods failed", r.Summary.Failed, len(r.Pods))
	case r.Summary.Refused > 0:
		return output.ErrProblem
	}
	return nil
}

// names writes the finished pods as KIND/NAME.
func (r *result) names(p *output.Printer) {
	for _, pod := range r.Pods {
		if pod.Outcome == finished {
			p.Line("pod/%s", pod.Name)
		}
	}
}

func (r *result) text(p *output.Printer) {
	var rows [][]string
	for _, pod := range r.Pods {
		message := safetext.Truncate(pod.Message, maxMessage)
		if pod.Hint != "" {
			message += " -> " + pod.Hint
		}
		shown := strings.ToLower(string(pod.Outcome))
		if pod.Outcome == finished && r.DryRun != dryRunNone {
			shown += fmt.Sprintf(" (%s dry run)", r.DryRun)
		}
		rows = append(rows, []string{pod.Namespace, "pod/" + pod.Name, shown, string(pod.Reason), message})
	}
	if len(rows) == 0 {
		p.Line("No unfinished pods found")
	} else {
		p.Table([]string{"NAMESPACE", "POD", "RESULT", "REASON", "MESSAGE"}, rows)
	}
	for _, note := range r.Notes {
		p.Note(note)
	}
}
