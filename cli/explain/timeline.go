// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/timeline"
)

var stepNames = map[timeline.StepName]string{
	timeline.StepNoticed: "end noticed", timeline.StepSeen: "end seen", timeline.StepDrained: "drained",
	timeline.StepSidecarsEnded: "sidecars ended", timeline.StepPodFinished: "pod finished", timeline.StepJobFinished: "Job finished",
}

var partyNames = map[timeline.Party]string{
	timeline.PartyKubelet: "kubelet", timeline.PartyOperator: "operator", timeline.PartyPolicy: "policy", timeline.PartyNode: "node",
	timeline.PartyOpenKruise: "OpenKruise", timeline.PartySidecars: "sidecars", timeline.PartyJobController: "Job controller",
	timeline.PartyOtherPods: "other pods",
}

// writeTimeline writes the steps from the end of the main containers to the end of the Job.
func writeTimeline(p *output.Printer, r *explain.Report) {
	t := r.Timeline
	if t == nil {
		return
	}
	rows := [][]output.Cell{output.Cells("main containers done", "", timeText(t.StartTime), "")}
	for _, step := range t.Steps {
		rows = append(rows, output.Cells(stepText(step), partiesText(step.By), timeText(step.EndTime), tookText(step, r.Now())))
	}
	p.Line("")
	p.Table([]string{"COMPLETION", "BY", "TIME", "TOOK"}, rows)
	if t.DurationSeconds != nil {
		last := "pod"
		if slices.ContainsFunc(t.Steps, func(s timeline.Step) bool { return s.Name == timeline.StepJobFinished }) {
			last = "Job"
		}
		p.StyledLine(output.Faint, fmt.Sprintf("%s until the %s finished; times have a resolution of %s",
			secondsText(*t.DurationSeconds), last, timeline.Resolution))
	}
}

func stepText(step timeline.Step) string {
	if step.Name != timeline.StepAttemptStarted {
		return stepNames[step.Name]
	}
	written, ok := map[v1alpha1.Mode]string{
		v1alpha1.ModePodPhase: "phase written", v1alpha1.ModeCRR: "CRR created", v1alpha1.ModeImage: "image swapped",
	}[step.Mode]
	if !ok {
		return "attempt started"
	}
	return fmt.Sprintf("%s, attempt %d", written, step.Attempt)
}

func partiesText(parties []timeline.Party) string {
	var names []string
	for _, party := range parties {
		names = append(names, partyNames[party])
	}
	return strings.Join(names, ", ")
}

func timeText(t *metav1.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// tookText returns the duration of the step, or why it is unknown.
func tookText(step timeline.Step, now time.Time) string {
	switch {
	case step.DurationSeconds != nil:
		return secondsText(*step.DurationSeconds)
	case step.Note == timeline.NotYet && step.StartTime != nil:
		return fmt.Sprintf("%s so far", explain.Age(now.Sub(step.StartTime.Time)))
	case step.Note != "":
		return step.Note
	}
	return "unknown"
}

// secondsText says that zero seconds are less than one: the times have no fractions.
func secondsText(seconds int64) string {
	if seconds == 0 {
		return "<1s"
	}
	return (time.Duration(seconds) * time.Second).String()
}
