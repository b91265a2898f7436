// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/truncate"
)

const (
	// maxPods bounds the pods in the output. The summary counts all.
	maxPods = 200
	// maxCell bounds a value in the table. Lists of containers can be long.
	maxCell = 80
)

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	Summary summary `json:"summary"`
	// Pods has the first pods with changes.
	Pods []podDiff `json:"pods"`
	// Notes say what was assumed because it could not be read, and what is not shown.
	Notes []string `json:"notes,omitempty"`
}

// summary counts the compared pods and templates.
type summary struct {
	CheckedPods int `json:"checkedPods"`
	ChangedPods int `json:"changedPods"`
}

// podDiff is a pod, or a Job or CronJob with a template, about which the decision changes.
type podDiff struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Policies are the applied policies that select the pod, before or after.
	Policies []string `json:"policies"`
	Changes  []change `json:"changes"`
}

func newResult() *result { return &result{Header: output.NewHeader("DiffReport"), Pods: []podDiff{}} }

// add adds a pod with changes.
func (r *result) add(pod podDiff) {
	if r.Summary.ChangedPods++; len(r.Pods) < maxPods {
		r.Pods = append(r.Pods, pod)
	}
}

func (r *result) note(text string) {
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

func (r *result) text(p *output.Printer) {
	for _, pod := range r.Pods {
		p.StyledLine(output.Bold, fmt.Sprintf("%s %s/%s: %s", pod.Kind, pod.Namespace, pod.Name, strings.Join(pod.Policies, ", ")))
		var rows [][]output.Cell
		for _, c := range pod.Changes {
			rows = append(rows, []output.Cell{
				{Text: "  " + c.Field}, {Text: c.Container}, {Text: c.NodeType},
				{Text: truncate.String(c.Before, maxCell), Style: output.Red}, {Text: truncate.String(c.After, maxCell), Style: output.Green},
			})
		}
		p.Table([]string{"  FIELD", "CONTAINER", "NODE TYPE", "BEFORE", "AFTER"}, rows)
	}
	for _, note := range r.Notes {
		p.Note(note)
	}
	checked, changed := r.Summary.CheckedPods, r.Summary.ChangedPods
	summary := fmt.Sprintf("Pods checked: %d; pods with another decision: %d", checked, changed)
	if changed == 0 {
		p.StyledLine(output.Green, summary)
		return
	}
	p.Line("%s", summary)
}
