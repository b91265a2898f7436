// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// writeReport writes the full report on one pod or template.
func writeReport(p *output.Printer, r *explain.Report) {
	p.Line("%s", title(r))
	writeStage(p, r)
	if r.NextReconcileTime != nil {
		p.Line("next reconcile within %s", explain.Age(r.NextReconcileTime.Sub(r.Now)))
	}
	p.Line("")
	writeContainers(p, r)
	writeSidecars(p, r)
	writeAttempts(p, r)
	writeFindings(p, r.Findings)
}

// writeFindings writes findings below their heading.
func writeFindings(p *output.Printer, findings []explain.Finding) {
	if len(findings) > 0 {
		p.Line("")
		p.Line("FINDINGS")
		p.Findings(findings)
	}
}

// writeStage writes the current decision. A message that is also a finding is written only there.
func writeStage(p *output.Printer, r *explain.Report) {
	if r.Stage == "" {
		return
	}
	head, reason := stageText(r.Stage, r.Reason, r.Planned)
	if reason != "" {
		head += " (" + reason + ")"
	}
	message := r.Message
	if slices.ContainsFunc(r.Findings, func(f explain.Finding) bool { return f.Message == r.Message }) {
		message = "see FINDINGS"
	}
	p.Prose(head+": ", message)
}

// stageText are the stage and the reason of a decision for people. The operator decides Terminating before it writes anything:
// until it has, the pod is due, or waits for what the reason says.
func stageText(stage plan.Stage, reason v1alpha1.Reason, planned bool) (shownStage, shownReason string) {
	switch {
	case planned && (reason == v1alpha1.ReasonTerminating || reason == v1alpha1.ReasonFallback):
		return "Due", ""
	case planned:
		stage = plan.StageWaiting
	}
	return string(stage), string(reason)
}

func title(r *explain.Report) string {
	text := fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
	if r.Job != "" {
		text += " of Job " + r.Job
	}
	parts := []string{"restartPolicy " + r.RestartPolicy}
	switch {
	case r.Template:
		parts = append(parts, "no pod yet")
	case r.NodeName == "":
		parts = append(parts, "no node yet")
	case r.NodeKind == plan.NodeUnknown, r.NodeKind == plan.NodeNotRead:
		parts = append(parts, fmt.Sprintf("node %s of unknown type", r.NodeName))
	default:
		parts = append(parts, fmt.Sprintf("%s node %s", strings.ToLower(string(r.NodeKind)), r.NodeName))
	}
	if r.MainsDoneTime != nil {
		parts = append(parts, fmt.Sprintf("main containers done %s ago", explain.Age(r.Now.Sub(r.MainsDoneTime.Time))))
	}
	return text + ": " + strings.Join(parts, ", ")
}

var roles = map[resolve.Role]string{
	resolve.RoleMain: "main", resolve.RoleSidecar: "sidecar", resolve.RoleInit: "init", resolve.RoleNativeSidecar: "native sidecar",
}

func writeContainers(p *output.Printer, r *explain.Report) {
	var rows [][]string
	for _, c := range r.Containers {
		by := c.DeclaredBy
		switch {
		case by == string(resolve.SourceEnvironment):
			by = "environment variables"
		case by == string(resolve.SourceAnnotation):
			by = "annotation"
		case by == "" && c.Role == resolve.RoleMain:
			by = "-"
		case by == "":
			by = "the pod"
		}
		rows = append(rows, []string{c.Name, roles[c.Role], stateText(c.State, r.Now), by})
	}
	p.Table([]string{"CONTAINER", "ROLE", "STATE", "DECLARED BY"}, rows)
}

// stateText describes the state of a container in a few words.
func stateText(state *explain.ContainerState, now time.Time) string {
	if state == nil {
		return ""
	}
	var text string
	switch {
	case state.Running != nil:
		text = strings.TrimSpace("running " + age(now, state.Running.StartedAt))
	case state.Terminated != nil:
		text = fmt.Sprintf("exit %d", state.Terminated.ExitCode)
		if ended := ago(now, state.Terminated.FinishedAt); ended != "" {
			text += ", " + ended
		}
	case state.Waiting != nil && state.Waiting.Reason != "":
		text = "waiting: " + state.Waiting.Reason
	default:
		text = "waiting"
	}
	if state.RestartCount > 0 {
		text += fmt.Sprintf(", %d restart", state.RestartCount)
		if state.RestartCount > 1 {
			text += "s"
		}
	}
	return text
}

// age returns the age, or nothing for a time that is not set, as in manifests and in what some virtual kubelets report.
func age(now time.Time, at metav1.Time) string {
	if at.IsZero() {
		return ""
	}
	return explain.Age(now.Sub(at.Time))
}

// ago returns the age of what has happened, or nothing.
func ago(now time.Time, at metav1.Time) string {
	if since := age(now, at); since != "" {
		return since + " ago"
	}
	return ""
}

var sources = map[resolve.Source]string{
	resolve.SourceEntry: "policy's entry", resolve.SourcePolicy: "policy", resolve.SourceEnvironment: "environment",
	resolve.SourceOperator: "operator's flag", resolve.SourceDefault: "default",
}

// writeSidecars writes the modes of each sidecar, one row for each node type, and its settings.
func writeSidecars(p *output.Printer, r *explain.Report) {
	var rows [][]string
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.Settings == nil {
			continue
		}
		settings := settingLines(r, c)
		for i := range max(len(settings), len(c.Settings.Nodes)) {
			row := make([]string, 4)
			if i == 0 {
				row[0] = c.Name
			}
			if i < len(c.Settings.Nodes) {
				row[1], row[2] = c.Settings.Nodes[i].NodeType, modesText(c.Settings.Nodes[i])
			}
			if i < len(settings) {
				row[3] = settings[i]
			}
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		p.Line("")
		p.Table([]string{"SIDECAR", "NODE TYPE", "MODE", "SETTINGS"}, rows)
	}
}

func modesText(onNode explain.NodeModes) string {
	if len(onNode.Modes) == 0 {
		return "none: " + string(onNode.Reason)
	}
	var names []string
	for _, mode := range onNode.Modes {
		names = append(names, string(mode))
	}
	if onNode.Attempt > 0 {
		names[0] += fmt.Sprintf(" (attempt %d)", onNode.Attempt)
	}
	return strings.Join(names, ", then ")
}

// settingLines lists the mode, the image if it was or may be used, and the other settings that are not defaults.
func settingLines(r *explain.Report, c *explain.Container) []string {
	s := c.Settings
	swapped := slices.ContainsFunc(r.Attempts, func(a explain.Attempt) bool {
		return a.Mode == v1alpha1.ModeImage && slices.Contains(a.Sidecars, c.Name)
	})
	lines := []string{settingLine(c, "mode", s.Mode.Value, s.Mode.Origin)}
	unlessDefault := func(name string, value any, origin explain.Origin) {
		if origin.Source != resolve.SourceDefault {
			lines = append(lines, settingLine(c, name, value, origin))
		}
	}
	if swapped || slices.ContainsFunc(s.Nodes, func(m explain.NodeModes) bool { return slices.Contains(m.Modes, v1alpha1.ModeImage) }) {
		lines = append(lines, settingLine(c, "image", s.Image.Value, s.Image.Origin))
	}
	if s.QuickExitPaths.Source != resolve.SourceEnvironment {
		unlessDefault("image covers", shorten(strings.Join(s.QuickExitPaths.Value, ",")), s.QuickExitPaths.Origin)
	}
	if s.ExitCodePolicy.Source != resolve.SourceOperator || s.ExitCodePolicy.Value == v1alpha1.ExitCodePolicyRespect {
		unlessDefault("exit codes", s.ExitCodePolicy.Value, s.ExitCodePolicy.Origin)
	}
	unlessDefault("drain", time.Duration(s.DrainSeconds.Value)*time.Second, s.DrainSeconds.Origin)
	unlessDefault("order", s.TerminationOrder.Value, s.TerminationOrder.Origin)
	unlessDefault("deadline", time.Duration(s.TerminationDeadlineSeconds.Value)*time.Second, s.TerminationDeadlineSeconds.Origin)
	unlessDefault("fallback", s.Fallback.Value, s.Fallback.Origin)
	return lines
}

// settingLine names the policy that a setting comes from, unless it is the one that declares the sidecar.
func settingLine(c *explain.Container, name string, value any, origin explain.Origin) string {
	from := sources[origin.Source]
	if origin.Policy != "" && origin.Policy != c.DeclaredBy {
		from = origin.Policy
	}
	return fmt.Sprintf("%s %v (%s)", name, value, from)
}

// shorten returns a list in one short line.
func shorten(list string) string {
	const most = 60
	if list = strings.Join(strings.Fields(list), " "); len(list) > most {
		return strings.ToValidUTF8(list[:most], "") + "..."
	}
	return list
}

// writeAttempts writes the past attempts and the operator's events.
func writeAttempts(p *output.Printer, r *explain.Report) {
	if len(r.Attempts) > 0 {
		var rows [][]string
		for _, a := range r.Attempts {
			result := ""
			switch {
			case a.Failure != "":
				result = "failed; see FINDINGS"
			case a.CompletionTime != nil:
				result = fmt.Sprintf("completed %s ago", explain.Age(r.Now.Sub(a.CompletionTime.Time)))
			}
			rows = append(rows, []string{string(a.Mode), strconv.Itoa(a.Number), ago(r.Now, a.StartTime), strings.Join(a.Sidecars, ", "), result})
		}
		p.Line("")
		p.Table([]string{"MODE", "ATTEMPT", "STARTED", "SIDECARS", "RESULT"}, rows)
	}
	if len(r.Events) > 0 {
		p.Line("")
		p.Line("OPERATOR EVENTS")
		for _, e := range r.Events {
			p.Prose(fmt.Sprintf("  %-5s %s: ", age(r.Now, e.Time), e.Reason), e.Message)
		}
	}
}

// policyName identifies a policy of either kind.
func policyName(r *explain.PolicyReport) string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// declared describes the sidecars that a policy declares.
func declared(r *explain.PolicyReport) []string {
	if r.IncludeInjected {
		return append(slices.Clone(r.Sidecars), "injected containers")
	}
	return r.Sidecars
}

// writePolicy writes the full report on one policy.
func writePolicy(p *output.Printer, r *explain.PolicyReport) {
	if r.Rejected {
		p.Line("%s: not enforced, because of its mistakes", policyName(r))
		p.Findings(r.Findings)
		return
	}
	p.Line("%s: mode %s, enforcement %s, priority %d", policyName(r), r.Mode, r.Enforcement, r.Priority)
	if len(declared(r)) > 0 {
		p.Prose("sidecars: ", strings.Join(declared(r), ", "))
	} else {
		p.Prose("main containers: ", strings.Join(r.Mains, ", ")+"; every other regular container is a sidecar")
	}
	for _, condition := range r.Conditions {
		p.Prose(fmt.Sprintf("%s %s (%s): ", condition.Type, condition.Status, condition.Reason), condition.Message)
	}
	if len(r.Pods) > 0 {
		var rows [][]string
		for _, pod := range r.Pods {
			stage, reason := stageText(pod.Stage, pod.Reason, pod.Planned)
			rows = append(rows, []string{pod.Namespace, strings.ToLower(pod.Kind) + "/" + pod.Name, strings.Join(pod.Sidecars, ", "), stage, reason})
		}
		p.Line("")
		p.Table([]string{"NAMESPACE", "POD", "SIDECARS", "STAGE", "REASON"}, rows)
	}
	writeFindings(p, r.Findings)
}
