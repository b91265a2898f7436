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
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// overdue is the delay after which a missing action is a finding.
const overdue = 45 * time.Second

// findings finds everything about the pod.
func (x *explainer) findings(report Report) {
	x.checkNamespace()
	x.checkDeclarations()
	x.checkLabels()
	if !plan.IsJobType(x.Pod.Pod) {
		declares := len(x.view.Sidecars) > 0 || x.resolution.DryRun != nil || len(x.resolution.Warnings) > 0
		if declares && x.next.Reason == v1alpha1.ReasonRestartPolicyAlways {
			x.add(SeverityProblem, x.next.Reason, "", "%s", x.next.Message)
		}
		return
	}
	if x.next.Reason == v1alpha1.ReasonNoMainContainer {
		x.add(SeverityProblem, x.next.Reason, "", "%s", x.next.Message).policy = x.policyOf("")
	}
	if !x.isFinished() {
		if x.JobUnreadable {
			x.add(SeverityWarning, v1alpha1.ReasonJobsForbidden, "", "includeInjected has no effect: the operator may not get Jobs")
		}
		x.checkDryRun()
		if len(x.view.Mains) > 0 && (x.Template || x.decision.MainsDone.IsZero()) {
			x.checkModes(report)
		}
		x.checkFailurePolicy()
		x.checkDeletion()
		x.mayHang()
		x.checkEnv()
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

// policyOf returns the policy that declares the sidecar, or without a name the first that declares one. It is empty if no policy does.
func (x *explainer) policyOf(sidecar string) resolve.PolicyRef {
	for _, declared := range x.view.Sidecars {
		if declared.Policy != nil && (sidecar == "" || sidecar == declared.Container) {
			return *declared.Policy
		}
	}
	return resolve.PolicyRef{}
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
		x.add(severity, warning.Reason, warning.Container, "%s", warning.Message).policy = x.policyOf(warning.Container)
	}
}

// checkDryRun finds sidecars that only policies with enforcement DryRun declare, and says what these would do.
func (x *explainer) checkDryRun() {
	if x.resolution.DryRun == nil {
		return
	}
	snapshot := x.snapshot()
	snapshot.View, snapshot.AssumeMarked = *x.resolution.DryRun, true
	decision := plan.Next(snapshot, x.now)
	undeclared := filter(x.resolution.DryRun.Sidecars, func(s resolve.Sidecar) bool { return x.view.Sidecar(s.Container) == nil })
	before := len(x.found)
	for _, sidecar := range x.resolution.DryRun.Sidecars {
		switch {
		case sidecar.Policy == nil || x.policy(*sidecar.Policy).Spec.Enforcement.Acts():
		case x.view.Sidecar(sidecar.Container) == nil:
			x.onlyInDryRun(sidecar, undeclared, !x.Template && !decision.MainsDone.IsZero())
		default:
			x.add(SeverityNote, v1alpha1.ReasonDryRun, sidecar.Container,
				"%s has enforcement DryRun; with Enforce it would take precedence for container %s", sidecar.Policy, sidecar.Container).
				policy = *sidecar.Policy
		}
	}
	if !x.Template && len(x.found) > before && len(decision.Ends()) > 0 {
		x.add(SeverityWarning, v1alpha1.ReasonWouldTerminate, "", "with enforcement Enforce the operator would now end %s", plan.DescribeWrites(decision.Ends()))
	}
}

// onlyInDryRun adds the finding on a sidecar that nothing else declares. The other sidecars of this kind end with it.
func (x *explainer) onlyInDryRun(sidecar resolve.Sidecar, all []resolve.Sidecar, mainsDone bool) {
	severity, effect := SeverityWarning, "the pod will hang"
	if mainsDone && !x.hasTerminated(sidecar.Container) {
		severity, effect = SeverityProblem, "the pod still hangs"
	}
	f := x.add(severity, v1alpha1.ReasonDryRun, sidecar.Container, "%s declares container %s only in DryRun: %s", sidecar.Policy, sidecar.Container, effect)
	f.lint = true
	x.patch(f, *sidecar.Policy, "/spec/enforcement", v1alpha1.EnforcementEnforce)
	x.adviseFinish(f, *x.resolution.DryRun, containersOf(all)...)
}

// checkDecision finds what is wrong with the pod now, without reasons that are already found.
func (x *explainer) checkDecision() {
	d := x.decision
	known := slices.ContainsFunc(x.found, func(f Finding) bool { return f.Reason == d.Reason && f.Severity == SeverityProblem })
	if d.Stage == plan.StageStuck && !known {
		x.add(SeverityProblem, d.Reason, "", "%s", d.Message).policy = x.policyOf("")
	}
	for _, substitution := range d.Substitutions {
		if substitution.Used == "" || d.MainsDone.IsZero() {
			continue // a finding already: the pod is stuck, or its main containers run and checkModes has found it
		}
		x.add(severityOf(substitution.Reason), substitution.Reason, substitution.Container, "%s", substitution.Message).
			policy = x.policyOf(substitution.Container)
	}
	x.backoffLimitRisk(d.Restarts)
	x.deadlineRisk()
	for _, failure := range d.Failures {
		x.adviseAfterFailure(x.add(SeverityWarning, v1alpha1.ReasonAttemptFailed, failure.Container, "%s", failure.Message), failure.Mode)
	}
	if len(d.Writes) == 0 || len(d.Failures) > 0 || d.MainsDone.IsZero() {
		return
	}
	if since := plan.DueSince(x.snapshot(), x.now); !since.IsZero() && x.now.Sub(since) > overdue {
		x.add(SeverityProblem, v1alpha1.ReasonOverdue, "", "sidecars should have been stopped %s ago but are still running", Age(x.now.Sub(since)))
	}
}

// deadlineRisk says how long the sidecars have until activeDeadlineSeconds pass. Those of a pod that has succeeded change no outcome, but
// those of its Job do.
func (x *explainer) deadlineRisk() {
	if x.decision.MainsDone.IsZero() || x.isFinished() || x.decision.Stage == plan.StageIgnored {
		return
	}
	pod := x.Pod.Pod
	if left := plan.Deadline(pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime).Sub(x.now); left > 0 {
		x.add(SeverityNote, v1alpha1.ReasonDeadlineRisk, "", "the kubelet ends the sidecars in %s, by the pod's activeDeadlineSeconds", Age(left)).
			policy = x.policyOf("")
	}
	if left := x.JobDeadline.Sub(x.now); left > 0 {
		x.add(SeverityWarning, v1alpha1.ReasonDeadlineRisk, "",
			"the activeDeadlineSeconds of Job %s pass in %s; it fails if the sidecars have not ended by then", x.Job, Age(left)).
			policy = x.policyOf("")
	}
}

// checkOptOut says which label keeps the operator away.
func (x *explainer) checkOptOut() {
	pod, message := x.Pod.Pod, "label "+v1alpha1.LabelIgnore+" of %s keeps the operator away"
	if !resolve.OptedOut(pod, x.operator.Resolve) {
		return
	}
	if pod.Labels[v1alpha1.LabelIgnore] != "true" {
		f := x.add(SeverityNote, v1alpha1.ReasonOptedOut, "", message, "namespace "+pod.Namespace)
		f.Hint = "remove the label if the operator should end the sidecars of every pod of the namespace"
		x.command(f, "kubectl label namespace %s %s-", pod.Namespace, v1alpha1.LabelIgnore)
	} else if f := x.add(SeverityNote, v1alpha1.ReasonOptedOut, "", message, "the pod"); !x.Template {
		x.command(f, "kubectl -n %s label pod %s %s-", pod.Namespace, pod.Name, v1alpha1.LabelIgnore)
	}
}

// checkOverrides says which policy takes precedence for a container, and why.
func (x *explainer) checkOverrides() {
	for _, override := range x.resolution.Overrides {
		x.add(SeverityNote, v1alpha1.ReasonOverridden, override.Container, "%s takes precedence over %s for %s: %s",
			override.By, override.Policy, lost(override), x.overrideRule(override))
	}
}

// lost says what a policy declares in vain.
func lost(override resolve.Override) string {
	text := fmt.Sprintf("%s of container %s", override.Lost, override.Container)
	if override.Others > 0 {
		text += fmt.Sprintf(" and %d more", override.Others)
	}
	return text
}

// overrideRule names the rule that gives precedence, in the order of internal/resolve.
func (x *explainer) overrideRule(override resolve.Override) string {
	by, overridden := x.policy(override.By), x.policy(override.Policy)
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

// missingContainers are the containers that a policy names and the pod does not have, and those of them that are misspelled.
type missingContainers struct {
	policy          resolve.PolicyRef
	all, misspelled []missingEntry
}

// The fields of a policy that name containers.
const (
	fieldSidecars = "sidecars"
	fieldMains    = "mainContainers"
)

// missingEntry is an entry of one of these fields.
type missingEntry struct {
	field, name string
	// meant is the container of the pod that the name is a likely misspelling of, or empty.
	meant string
}

func (m missingEntry) String() string {
	if m.meant != "" {
		return fmt.Sprintf("%s (did you mean %s?)", m.name, m.meant)
	}
	return m.name
}

// checkMissingContainers finds containers that policies name and the pod does not have.
func (x *explainer) checkMissingContainers() {
	for _, missing := range x.missing {
		f := x.add(SeverityNote, v1alpha1.ReasonContainerNotFound, "", "%s names %s, which is %s",
			missing.policy, strings.Join(texts(missing.all), ", "), x.notInPod())
		if len(missing.misspelled) > 0 {
			f.Severity, f.lint = SeverityWarning, true
			x.adviseSpelling(f, missing.policy, missing.misspelled[0])
		} else {
			f.policy = missing.policy
		}
	}
}

// missingContainers lists the policies that name containers that the pod does not have. Policies often name more containers than
// one pod has, so an existing pod must have none of them, or one with a similar name.
func (x *explainer) missingContainers() []missingContainers {
	undeclared := x.undeclared()
	var all []missingContainers
	for _, policy := range x.Policies {
		missing := x.missingFrom(policy, undeclared)
		misspelled := filter(missing, func(entry missingEntry) bool { return entry.meant != "" })
		if !x.Template && len(missing) < len(policy.Spec.Sidecars)+len(policy.Spec.MainContainers) {
			missing = misspelled
		}
		if len(missing) > 0 {
			all = append(all, missingContainers{policy.Ref, missing, misspelled})
		}
	}
	return all
}

// notInPod says that a container is missing. A webhook may add it to the pods of a template.
func (x *explainer) notInPod() string {
	if x.Template {
		return "not in the pod unless a webhook injects it"
	}
	return "not in the pod"
}

// missingFrom lists the entries of the policy that no container of the pod has the name of. A sidecar may be meant by a container
// without a declaration, and a main container by one that the policy does not list.
func (x *explainer) missingFrom(policy resolve.Policy, undeclared []string) []missingEntry {
	var missing []missingEntry
	check := func(field, name string, candidates []string) {
		if !x.hasContainer(name) {
			missing = append(missing, missingEntry{field, name, Similar(name, candidates)})
		}
	}
	for _, sidecar := range policy.Spec.Sidecars {
		check(fieldSidecars, sidecar.Name, undeclared)
	}
	unlisted := filter(RegularContainers(x.Pod.Pod), func(name string) bool {
		return policy.Role(x.Pod.Pod, name, x.operator.Resolve) != resolve.RoleMain
	})
	for _, main := range policy.Spec.MainContainers {
		check(fieldMains, string(main), unlisted)
	}
	return missing
}

// hasContainer reports whether a container of the pod, or one that a webhook will add, has the name, which may have stars.
func (x *explainer) hasContainer(name string) bool {
	named := func(c corev1.Container) bool { return resolve.Matches(name, c.Name) }
	return slices.ContainsFunc(x.Pod.Pod.Spec.Containers, named) || slices.ContainsFunc(x.Pod.Pod.Spec.InitContainers, named) ||
		slices.ContainsFunc(x.Injected, func(i sidecars.Injection) bool { return resolve.Matches(name, i.Container) })
}

// containersOf lists the names of the sidecars.
func containersOf(sidecars []resolve.Sidecar) []string {
	names := []string{}
	for _, sidecar := range sidecars {
		names = append(names, sidecar.Container)
	}
	return names
}

// RegularContainers lists the names of the pod's regular containers.
func RegularContainers(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	return names
}

func finding(severity Severity, reason v1alpha1.Reason, container, message string) Finding {
	return Finding{Severity: severity, Reason: reason, Container: container, Message: message, Hint: about[reason].hint, lint: about[reason].lint}
}

// isWatched reports whether the operator watches the pod's namespace.
func (x *explainer) isWatched() bool { return x.operator.Watches(x.Pod.Pod.Namespace) }

// notWatched says which namespaces the operator watches instead of this one.
func notWatched(operator settings.Decisions, namespace string) string {
	const maxNamespaces = 5
	return fmt.Sprintf("the operator does not watch namespace %s, but only %s", namespace, safetext.List(operator.WatchNamespaces, maxNamespaces, ", "))
}

// checkNamespace finds a pod with several containers in a namespace that the operator does not watch. In a pod with one there is no
// sidecar to end.
func (x *explainer) checkNamespace() {
	if !x.isWatched() && plan.IsJobType(x.Pod.Pod) && len(x.Pod.Pod.Spec.Containers)+len(x.Injected) > 1 {
		x.add(SeverityWarning, v1alpha1.ReasonNamespaceNotWatched, "", "%s", notWatched(x.operator, x.Pod.Pod.Namespace))
	}
}
