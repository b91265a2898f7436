// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Why the operator ignores a pod.
const (
	restartPolicyAlways = "restartPolicy is Always, the default of pods; the operator acts on pods with Never or OnFailure only"
	noMainContainer     = "every container is declared a sidecar, so the operator cannot know when the pod is done"
)

// overdue is the delay after which a missing action is a finding.
const overdue = 45 * time.Second

// findings finds everything about the pod.
func (x *explainer) findings(report Report) {
	x.checkNamespace()
	x.checkDeclarations()
	if !IsJobType(x.Pod.Pod) {
		if x.isDeclared() {
			x.add(SeverityProblem, v1alpha1.ReasonRestartPolicyAlways, "", restartPolicyAlways)
		}
		return
	}
	if len(x.view.Sidecars) > 0 && len(x.view.Mains) == 0 {
		x.add(SeverityProblem, v1alpha1.ReasonNoMainContainer, "", noMainContainer)
	}
	if !x.isFinished() {
		x.checkDryRun()
		if len(x.view.Mains) > 0 && (x.Template || x.decision.MainsDone.IsZero()) {
			x.checkModes(report)
		}
		x.checkFailurePolicy()
		x.checkDeletion()
		x.mayHang()
		x.checkEnvFrom()
		x.checkEnvNames()
		x.checkNotSelecting()
	}
	x.checkDecision()
	x.checkOptOut()
	x.checkOverrides()
	x.checkMissingContainers()
}

// add adds a finding with what to do about it, and returns it until the next one is added.
func (x *explainer) add(severity Severity, reason v1alpha1.Reason, container, format string, arguments ...any) *Finding {
	f := finding(severity, reason, container, fmt.Sprintf(format, arguments...))
	x.advise(&f)
	x.found = append(x.found, f)
	return &x.found[len(x.found)-1]
}

func (x *explainer) isDeclared() bool {
	return len(x.view.Sidecars) > 0 || x.resolution.DryRun != nil || len(x.resolution.Warnings) > 0
}

// isFinished reports whether the pod has finished, so that findings on what may go wrong no longer matter.
func (x *explainer) isFinished() bool {
	return !x.Template && (x.Pod.Pod.DeletionTimestamp != nil || plan.HasTerminalPhase(x.Pod.Pod) || x.decision.Stage == plan.StageTerminated)
}

func (x *explainer) checkDeclarations() {
	for _, warning := range x.resolution.Warnings {
		severity := SeverityProblem
		if warning.Reason == v1alpha1.ReasonNativeSidecar {
			severity = SeverityNote
		} else if sidecar := x.view.Sidecar(warning.Container); sidecar != nil && sidecar.Policy != nil {
			severity = SeverityWarning
		}
		x.add(severity, warning.Reason, warning.Container, "%s", warning.Message)
	}
}

// checkDryRun says what policies with enforcement DryRun would do.
func (x *explainer) checkDryRun() {
	if x.resolution.DryRun == nil {
		return
	}
	before := len(x.found)
	for _, sidecar := range x.resolution.DryRun.Sidecars {
		switch {
		case sidecar.Policy == nil || !x.isDryRun(*sidecar.Policy):
		case x.view.Sidecar(sidecar.Container) == nil:
			f := x.add(SeverityWarning, v1alpha1.ReasonDryRun, sidecar.Container,
				"%s names container %s, but has enforcement DryRun and does not act", sidecar.Policy, sidecar.Container)
			x.patch(f, *sidecar.Policy, "add", "/spec/enforcement", v1alpha1.EnforcementEnforce)
		default:
			x.add(SeverityNote, v1alpha1.ReasonDryRun, sidecar.Container,
				"%s has enforcement DryRun; with Enforce it would take precedence for container %s", sidecar.Policy, sidecar.Container)
		}
	}
	if x.Template || len(x.found) == before {
		return
	}
	snapshot := x.snapshot()
	snapshot.View, snapshot.AssumeMarked = *x.resolution.DryRun, true
	if decision := plan.Next(snapshot, x.now); len(decision.Ends()) > 0 {
		x.add(SeverityWarning, v1alpha1.ReasonWouldTerminate, "", "with enforcement Enforce the operator would now end %s", plan.DescribeWrites(decision.Ends()))
	}
}

func (x *explainer) isDryRun(ref resolve.PolicyRef) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool {
		return p.Ref == ref && !p.Spec.Enforcement.Acts()
	})
}

// checkDecision finds what is wrong with the pod now, without reasons that are already found.
func (x *explainer) checkDecision() {
	d := x.decision
	known := slices.ContainsFunc(x.found, func(f Finding) bool { return f.Reason == d.Reason && f.Severity == SeverityProblem })
	if d.Stage == plan.StageStuck && !known {
		x.add(SeverityProblem, d.Reason, "", "%s", d.Message)
	}
	for _, substitution := range d.Substitutions {
		if substitution.Used == "" || d.MainsDone.IsZero() {
			continue // a finding already: the pod is stuck, or its main containers run and checkModes has found it
		}
		x.add(severityOf(substitution.Reason), substitution.Reason, substitution.Container, "%s", substitution.Message)
	}
	if d.BackoffLimitRisk {
		x.backoffLimitRisk(imagesSwapped(d.Writes))
	}
	for _, failure := range d.Failures {
		x.add(SeverityWarning, v1alpha1.ReasonAttemptFailed, failure.Container, "%s", failure.Message)
	}
	if due := x.overdueBy(); due > overdue {
		x.add(SeverityProblem, v1alpha1.ReasonOverdue, "", "sidecars should have been stopped %s ago but are still running", Age(due))
	}
}

// overdueBy returns for how long an action has been due.
func (x *explainer) overdueBy() time.Duration {
	marking := x.decision.Reason == v1alpha1.ReasonMarking && len(x.decision.Writes) > 0
	if len(x.decision.Ends()) == 0 && !marking || x.decision.MainsDone.IsZero() || len(x.decision.Failures) > 0 {
		return 0
	}
	since := x.decision.MainsDone
	var longest time.Duration
	for _, sidecar := range x.view.Sidecars {
		longest = max(longest, sidecar.Drain)
	}
	since = since.Add(longest)
	for _, attempt := range x.Attempts {
		if attempt.Started.After(since) {
			since = attempt.Started
		}
	}
	return x.now.Sub(since)
}

// checkOptOut says which label keeps the operator away.
func (x *explainer) checkOptOut() {
	if !resolve.OptedOut(x.Pod.Pod, x.operator.Resolve) {
		return
	}
	where := "namespace " + x.Pod.Pod.Namespace
	if x.Pod.Pod.Labels[v1alpha1.LabelIgnore] == "true" {
		where = "the pod"
	}
	x.add(SeverityNote, v1alpha1.ReasonOptedOut, "", "label %s of %s keeps the operator away", v1alpha1.LabelIgnore, where)
}

// checkOverrides says which policy takes precedence for a container, and why.
func (x *explainer) checkOverrides() {
	for _, override := range x.resolution.Overrides {
		x.add(SeverityNote, v1alpha1.ReasonOverridden, override.Container, "%s takes precedence over %s for %s of container %s%s: %s",
			override.By, override.Policy, override.Lost, override.Container, andOthers(override.Others), x.overrideRule(override))
	}
}

// andOthers returns the count of further containers, or nothing for none.
func andOthers(others int) string {
	if others == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", others)
}

// overrideRule names the rule that gives precedence, in the order of internal/resolve.
func (x *explainer) overrideRule(override resolve.Override) string {
	find := func(ref resolve.PolicyRef) resolve.Policy {
		return x.Policies[slices.IndexFunc(x.Policies, func(p resolve.Policy) bool { return p.Ref == ref })]
	}
	by, overridden := find(override.By), find(override.Policy)
	switch {
	case by.Ref.Kind != overridden.Ref.Kind:
		return "namespaced policies take precedence over cluster policies"
	case by.Spec.Priority != overridden.Spec.Priority:
		return fmt.Sprintf("its priority is %d, the other is %d", by.Spec.Priority, overridden.Spec.Priority)
	case !by.Created.Equal(overridden.Created):
		return "both have the same priority, and it is older"
	}
	return "both have the same priority and age, and its name sorts first"
}

// missingContainers is a policy with the containers that it names and the pod does not have.
type missingContainers struct {
	policy  resolve.PolicyRef
	entries []missingEntry
	message string
}

// missingEntry is an entry of spec.sidecars or spec.mainContainers.
type missingEntry struct {
	sidecar bool
	index   int
	name    string
	// meant is the container of the pod that the name is a likely misspelling of, or empty.
	meant string
}

func (m missingEntry) isMisspelled() bool { return m.meant != "" }

func (m missingEntry) String() string {
	if m.isMisspelled() {
		return fmt.Sprintf("%s (did you mean %s?)", m.name, m.meant)
	}
	return m.name
}

// isMisspelled reports whether the policy probably means a container of the pod by another name.
func (m missingContainers) isMisspelled() bool {
	return slices.ContainsFunc(m.entries, missingEntry.isMisspelled)
}

// checkMissingContainers finds containers that policies name and the pod does not have.
func (x *explainer) checkMissingContainers() {
	for _, missing := range x.missing {
		f := x.add(SeverityNote, v1alpha1.ReasonContainerNotFound, "", "%s %s", missing.policy, missing.message)
		if i := slices.IndexFunc(missing.entries, missingEntry.isMisspelled); i >= 0 {
			f.Severity = SeverityWarning
			x.adviseSpelling(f, missing.policy, missing.entries[i])
		}
	}
}

// missingContainers lists the policies that name containers that the pod does not have. Policies often name more containers than
// one pod has, so an existing pod must have none of them, or one with a similar name. Containers that a webhook will add count as the
// pod's.
func (x *explainer) missingContainers() []missingContainers {
	var undeclared []string
	for _, container := range x.undeclared() {
		undeclared = append(undeclared, container.Name)
	}
	var all []missingContainers
	for _, policy := range x.Policies {
		missing := x.missingFrom(policy, undeclared)
		names := len(policy.Spec.Sidecars) + len(policy.Spec.MainContainers)
		if !x.Template && len(missing) < names {
			missing = filter(missing, missingEntry.isMisspelled)
		}
		if len(missing) == 0 {
			continue
		}
		var listed []string
		for _, entry := range missing {
			listed = append(listed, entry.String())
		}
		message := fmt.Sprintf("names %s, which is not in the pod", strings.Join(listed, ", "))
		if x.Template {
			message += " unless a webhook injects it"
		}
		all = append(all, missingContainers{policy.Ref, missing, message})
	}
	return all
}

// missingFrom lists the entries of the policy that no container of the pod has the name of. A sidecar may be meant by a container
// without a declaration, and a main container by one that the policy does not list.
func (x *explainer) missingFrom(policy resolve.Policy, undeclared []string) []missingEntry {
	var missing []missingEntry
	add := func(entry missingEntry, candidates []string) {
		if !hasContainer(x.Pod.Pod, entry.name) {
			entry.meant = Similar(entry.name, candidates)
			missing = append(missing, entry)
		}
	}
	var unlisted []string
	for i := range x.Pod.Pod.Spec.Containers {
		if name := x.Pod.Pod.Spec.Containers[i].Name; policy.Role(x.Pod.Pod, name, x.operator.Resolve) != resolve.RoleMain {
			unlisted = append(unlisted, name)
		}
	}
	for i, sidecar := range policy.Spec.Sidecars {
		if !x.isInjected(sidecar.Name) {
			add(missingEntry{sidecar: true, index: i, name: sidecar.Name}, undeclared)
		}
	}
	for i, main := range policy.Spec.MainContainers {
		add(missingEntry{index: i, name: string(main)}, unlisted)
	}
	return missing
}

// hasContainer reports whether a container of the pod has the name, which may have stars.
func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return resolve.Matches(name, c.Name) }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named)
}

func finding(severity Severity, reason v1alpha1.Reason, container, message string) Finding {
	return Finding{Severity: severity, Reason: reason, Container: container, Message: message, Hint: hints[reason]}
}

// maxNamespaces limits the namespaces that a message lists.
const maxNamespaces = 5

// watched lists the namespaces that the operator watches.
func watched(operator settings.Decisions) string {
	return safetext.List(operator.WatchNamespaces, maxNamespaces, ", ")
}

// isWatched reports whether the operator watches the pod's namespace.
func (x *explainer) isWatched() bool { return x.operator.Watches(x.Pod.Pod.Namespace) }

func (x *explainer) notWatched() string {
	return fmt.Sprintf("the operator does not watch namespace %s, but only %s", x.Pod.Pod.Namespace, watched(x.operator))
}

// checkNamespace finds a pod with several containers in a namespace that the operator does not watch. In a pod with one there is no
// sidecar to end.
func (x *explainer) checkNamespace() {
	if !x.isWatched() && IsJobType(x.Pod.Pod) && len(x.Pod.Pod.Spec.Containers)+len(x.Injected) > 1 {
		x.add(SeverityWarning, v1alpha1.ReasonNamespaceNotWatched, "", "%s", x.notWatched())
	}
}
