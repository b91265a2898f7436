// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// writeReport writes all there is to say about one pod or template.
func writeReport(p *output.Printer, r *explain.Report) {
	p.StyledLine(output.Bold, title(r))
	writeStage(p, r)
	if r.NextLook != nil {
		p.StyledLine(output.Faint, fmt.Sprintf("the operator looks again in %s at the latest", explain.Age(r.NextLook.Sub(r.Now()))))
	}
	p.Line("")
	writeContainers(p, r)
	writeSidecars(p, r)
	writeAttempts(p, r)
	if len(r.Findings) > 0 {
		p.Line("")
		p.StyledLine(output.Bold, "FINDINGS")
		p.Findings(r.Findings)
	}
}

// writeStage says what is decided now, once: a finding may say it at length.
func writeStage(p *output.Printer, r *explain.Report) {
	if r.Stage == "" {
		return
	}
	head, message := fmt.Sprintf("%s (%s): ", r.Stage, r.StageReason), r.Message
	if slices.ContainsFunc(r.Findings, func(f explain.Finding) bool { return f.Message == r.Message }) {
		message = "see the findings"
	}
	p.Prose([]output.Cell{{Text: head, Style: stageStyles[r.Stage]}}, message)
}

var stageStyles = map[plan.Stage]output.Style{
	plan.StageStuck: output.Red, plan.StageTerminated: output.Green, plan.StageTerminating: output.Yellow,
}

func title(r *explain.Report) string {
	text := fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
	if r.Owner != "" {
		text += " of Job " + r.Owner
	}
	parts := []string{"restartPolicy " + r.RestartPolicy}
	switch {
	case r.Template:
		parts = append(parts, "pods to come")
	case r.Node == "":
		parts = append(parts, "no node yet")
	case r.NodeKind == plan.NodeUnknown:
		parts = append(parts, fmt.Sprintf("node %s, of unknown kind", r.Node))
	default:
		parts = append(parts, fmt.Sprintf("%s node %s", strings.ToLower(string(r.NodeKind)), r.Node))
	}
	if r.MainsDone != nil {
		parts = append(parts, fmt.Sprintf("mains done %s ago", explain.Age(r.Now().Sub(r.MainsDone.Time))))
	}
	return text + ": " + strings.Join(parts, ", ")
}

var roles = map[explain.Role]string{
	explain.RoleMain: "main", explain.RoleSidecar: "sidecar", explain.RoleInit: "init", explain.RoleNativeSidecar: "native sidecar",
}

func writeContainers(p *output.Printer, r *explain.Report) {
	var rows [][]output.Cell
	for _, c := range r.Containers {
		by := c.DeclaredBy
		switch {
		case by == "environment":
			by = "environment variables"
		case by == "" && c.Role == explain.RoleMain:
			by = "nothing"
		case by == "":
			by = "the pod"
		}
		style := output.Plain
		if c.Role == explain.RoleSidecar {
			style = output.Green
		}
		rows = append(rows, []output.Cell{{Text: c.Name}, {Text: roles[c.Role], Style: style}, {Text: c.State}, {Text: by}})
	}
	p.Table([]string{"CONTAINER", "ROLE", "STATE", "DECLARED BY"}, rows)
}

var sources = map[resolve.Source]string{
	resolve.SourceEntry: "policy's entry", resolve.SourcePolicy: "policy", resolve.SourceEnvironment: "environment",
	resolve.SourceOperator: "operator's flag", resolve.SourceDefault: "default",
}

// writeSidecars says how each sidecar will be ended: one row for each kind of node, beside the settings.
func writeSidecars(p *output.Printer, r *explain.Report) {
	var rows [][]output.Cell
	for _, c := range r.Containers {
		if c.Settings == nil {
			continue
		}
		settings := settingLines(c.Settings)
		for i := range max(len(settings), len(c.Settings.Ways)) {
			row := make([]output.Cell, 4)
			if i == 0 {
				row[0].Text = c.Name
			}
			if i < len(c.Settings.Ways) {
				row[1].Text, row[2] = c.Settings.Ways[i].Where, wayCell(c.Settings.Ways[i])
			}
			if i < len(settings) {
				row[3].Text = settings[i]
			}
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		p.Line("")
		p.Table([]string{"SIDECAR", "ON A", "IS ENDED BY", "SETTINGS"}, rows)
	}
}

func wayCell(way explain.Way) output.Cell {
	if len(way.Modes) == 0 {
		return output.Cell{Text: "nothing: " + string(way.Reason), Style: output.Red}
	}
	var names []string
	for _, mode := range way.Modes {
		name := string(mode)
		if mode == v1alpha1.ModeCRR && way.PhaseFirst {
			name += " with the phase before it"
		}
		names = append(names, name)
	}
	return output.Cell{Text: strings.Join(names, ", then ")}
}

// settingLines writes the mode, the image where it may be used, and what else somebody has set.
func settingLines(s *explain.Settings) []string {
	lines := []string{"mode " + with(s.Mode)}
	if mayUseImage(s) {
		lines = append(lines, "image "+with(s.Image))
	}
	if from := s.QuickExitPaths.From; from != resolve.SourceDefault && from != resolve.SourceEnvironment {
		lines = append(lines, "image covers "+with(explain.Setting{Value: brief(s.QuickExitPaths.Value), From: from}))
	}
	for _, setting := range []struct {
		name string
		explain.Setting
	}{{"exit codes", s.ExitCodes}, {"drain", s.Drain}, {"deadline", s.Deadline}, {"fallback", s.Fallback}} {
		if setting.From != resolve.SourceDefault && (setting.From != resolve.SourceOperator || setting.Value == string(v1alpha1.ExitCodesRespect)) {
			lines = append(lines, setting.name+" "+with(setting.Setting))
		}
	}
	return lines
}

// brief writes a list in one short line.
func brief(list string) string {
	const most = 60
	if list = strings.Join(strings.Fields(list), " "); len(list) > most {
		return strings.ToValidUTF8(list[:most], "") + "..."
	}
	return list
}

func mayUseImage(s *explain.Settings) bool {
	return slices.ContainsFunc(s.Ways, func(w explain.Way) bool { return slices.Contains(w.Modes, v1alpha1.ModeImage) })
}

// with writes a setting and where it comes from.
func with(s explain.Setting) string {
	return fmt.Sprintf("%s (%s)", s.Value, sources[s.From])
}

// writeAttempts says what was done, and what the operator said of it.
func writeAttempts(p *output.Printer, r *explain.Report) {
	if len(r.Attempts) > 0 {
		var rows [][]output.Cell
		for _, a := range r.Attempts {
			mode := string(a.Mode)
			if a.For != "" {
				mode += " for " + string(a.For)
			}
			var result output.Cell
			switch {
			case a.Result != "":
				result = output.Cell{Text: "failed; see the findings", Style: output.Red}
			case a.Finished != nil:
				result = output.Cell{Text: fmt.Sprintf("carried out %s ago", explain.Age(r.Now().Sub(a.Finished.Time)))}
			}
			rows = append(rows, []output.Cell{
				{Text: mode}, {Text: fmt.Sprint(a.Number + 1)}, {Text: explain.Age(r.Now().Sub(a.Started.Time)) + " ago"},
				{Text: strings.Join(a.Containers, ", ")}, result,
			})
		}
		p.Line("")
		p.Table([]string{"DONE", "ATTEMPT", "WHEN", "SIDECARS", "RESULT"}, rows)
	}
	if len(r.Events) > 0 {
		p.Line("")
		p.StyledLine(output.Bold, "EVENTS OF THE OPERATOR")
		for _, e := range r.Events {
			head := fmt.Sprintf("  %-5s %s: ", explain.Age(r.Now().Sub(e.Time.Time)), e.Reason)
			p.Prose(output.Cells(head), e.Message)
		}
	}
}
