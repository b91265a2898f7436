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
)

// Why the operator ignores a pod.
const (
	restartPolicyAlways = "restartPolicy is Always, the default of pods; the operator acts on pods with Never or OnFailure only"
	noMainContainer     = "every container is declared a sidecar, so the operator cannot know when the pod is done"
)

// overdue is the delay after which a missing action is a finding. The operator waits while the pod's status changes.
const overdue = 45 * time.Second

// findings returns all findings on the pod.
func (x *explainer) findings(report Report) []Finding {
	all := append(x.checkNamespace(), x.checkDeclarations()...)
	if !IsJobType(x.Pod.Pod) {
		if x.isDeclared() {
			all = append(all, finding(SeverityProblem, v1alpha1.ReasonRestartPolicyAlways, "", restartPolicyAlways))
		}
		return all
	}
	if len(x.view.Sidecars) > 0 && len(x.view.Mains) == 0 {
		all = append(all, finding(SeverityProblem, v1alpha1.ReasonNoMainContainer, "", noMainContainer))
	}
	if !x.isFinished() {
		all = append(all, x.checkDryRun()...)
		if len(x.view.Mains) > 0 && (x.Template || x.decision.MainsDone.IsZero()) {
			all = append(all, x.checkModes(report)...)
		}
		all = append(all, x.checkFailurePolicy()...)
		all = append(all, x.checkDeletion()...)
		all = append(all, x.mayHang()...)
		all = append(all, x.checkEnvFrom()...)
		all = append(all, x.checkEnvNames()...)
		all = append(all, x.checkNotSelecting()...)
	}
	all = append(all, x.checkDecision(all)...)
	all = append(all, x.checkOverrides()...)
	all = append(all, x.checkLists()...)
	return append(all, x.checkMissingContainers()...)
}

func (x *explainer) isDeclared() bool {
	return len(x.view.Sidecars) > 0 || x.resolution.DryRun != nil || len(x.resolution.Warnings) > 0
}

// isFinished reports whether the pod has finished, so that findings on what may go wrong no longer matter.
func (x *explainer) isFinished() bool {
	return !x.Template && (x.Pod.Pod.DeletionTimestamp != nil || plan.HasTerminalPhase(x.Pod.Pod) || x.decision.Stage == plan.StageTerminated)
}

func (x *explainer) checkDeclarations() []Finding {
	var all []Finding
	for _, warning := range x.resolution.Warnings {
		severity := SeverityProblem
		if warning.Reason == v1alpha1.ReasonNativeSidecar {
			severity = SeverityNote
		} else if sidecar := x.view.Sidecar(warning.Container); sidecar != nil && sidecar.Policy != nil {
			severity = SeverityWarning
		}
		all = append(all, finding(severity, warning.Reason, warning.Container, warning.Message))
	}
	return all
}

// checkDryRun says what policies with enforcement DryRun would do.
func (x *explainer) checkDryRun() []Finding {
	if x.resolution.DryRun == nil {
		return nil
	}
	var all []Finding
	for _, sidecar := range x.resolution.DryRun.Sidecars {
		if sidecar.Policy == nil || !x.isDryRun(*sidecar.Policy) {
			continue
		}
		severity, message := SeverityNote, fmt.Sprintf("%s has enforcement DryRun; with Enforce it would take precedence for container %s", sidecar.Policy, sidecar.Container)
		if x.view.Sidecar(sidecar.Container) == nil {
			severity, message = SeverityWarning, fmt.Sprintf("%s names container %s, but has enforcement DryRun and does not act", sidecar.Policy, sidecar.Container)
		}
		all = append(all, finding(severity, v1alpha1.ReasonDryRun, sidecar.Container, message))
	}
	if !x.Template && len(all) > 0 {
		snapshot := x.snapshot()
		snapshot.View = *x.resolution.DryRun
		if decision := plan.Next(snapshot, x.now); len(decision.Actions) > 0 {
			all = append(all, finding(SeverityWarning, v1alpha1.ReasonWouldTerminate, "",
				"with enforcement Enforce the operator would now end "+plan.DescribeActions(decision.Actions)))
		}
	}
	return all
}

func (x *explainer) isDryRun(ref resolve.PolicyRef) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool {
		return p.Ref == ref && !p.Spec.Enforcement.Acts()
	})
}

// checkDecision returns what is wrong with the pod now, without reasons that are already found.
func (x *explainer) checkDecision(found []Finding) []Finding {
	var all []Finding
	d := x.decision
	known := func(reason v1alpha1.Reason) bool {
		return slices.ContainsFunc(found, func(f Finding) bool { return f.Reason == reason && f.Severity == SeverityProblem })
	}
	if d.Stage == plan.StageStuck && !known(d.Reason) {
		all = append(all, finding(SeverityProblem, d.Reason, "", d.Message))
	}
	for _, substitution := range d.Substitutions {
		if substitution.Used == "" {
			continue // the pod is stuck, which is a finding already
		}
		all = append(all, finding(severityOf(substitution.Reason), substitution.Reason, substitution.Container, substitution.Message))
	}
	if d.BackoffLimitRisk {
		all = append(all, x.backoffLimitRisk(imagesSwapped(d.Actions))...)
	}
	for _, failure := range d.Failures {
		all = append(all, finding(SeverityWarning, v1alpha1.ReasonAttemptFailed, failure.Container, failure.Message))
	}
	if due := x.overdueBy(); due > overdue {
		all = append(all, finding(SeverityProblem, v1alpha1.ReasonOverdue, "",
			fmt.Sprintf("sidecars should have been stopped %s ago but are still running", Age(due))))
	}
	return all
}

// overdueBy returns for how long an action has been due.
func (x *explainer) overdueBy() time.Duration {
	if len(x.decision.Actions) == 0 || len(x.decision.Failures) > 0 {
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

// checkOverrides says which policy takes precedence for a container, and why.
func (x *explainer) checkOverrides() []Finding {
	var all []Finding
	for _, override := range x.resolution.Overrides {
		all = append(all, finding(SeverityNote, v1alpha1.ReasonOverridden, override.Container,
			fmt.Sprintf("%s takes precedence over %s for container %s%s: %s", override.By, override.Policy, override.Container, andOthers(override.Others), x.overrideRule(override))))
	}
	return all
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

// checkLists finds policies that leave the pod alone because it does not list its main containers. An invalid list is a
// declaration without effect, which checkDeclarations reports.
func (x *explainer) checkLists() []Finding {
	var all []Finding
	for _, policy := range x.Policies {
		if reason, message := policy.LeavesAlone(x.Pod.Pod); reason == v1alpha1.ReasonMainContainersNotListed {
			all = append(all, finding(SeverityNote, reason, "", fmt.Sprintf("%s leaves the pod alone: %s", policy.Ref, message)))
		}
	}
	return all
}

// missingContainers is a policy with the containers that it names and the pod does not have.
type missingContainers struct {
	policy resolve.PolicyRef
	// misspelled is true if the policy probably means a container of the pod that has a similar name.
	misspelled bool
	message    string
}

// checkMissingContainers finds containers that policies name and the pod does not have.
func (x *explainer) checkMissingContainers() []Finding {
	var all []Finding
	for _, missing := range x.missingContainers() {
		severity := SeverityNote
		if missing.misspelled {
			severity = SeverityWarning
		}
		all = append(all, finding(severity, v1alpha1.ReasonContainerNotFound, "", fmt.Sprintf("%s %s", missing.policy, missing.message)))
	}
	return all
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
		missing, misspelled := x.missingFrom(policy, undeclared)
		names := len(policy.Spec.Sidecars) + len(policy.Spec.MainContainers)
		if !x.Template && len(missing) < names {
			missing = misspelled
		}
		if len(missing) == 0 {
			continue
		}
		message := fmt.Sprintf("names %s, which is not in the pod", strings.Join(missing, ", "))
		if x.Template {
			message += " unless a webhook injects it"
		}
		all = append(all, missingContainers{policy.Ref, len(misspelled) > 0, message})
	}
	return all
}

// missingFrom lists the names in the policy that no container of the pod has, each with the name that it is a likely misspelling
// of, and those with such a name alone. A sidecar may be meant by a container without a declaration, and a main container by one
// that the policy does not list.
func (x *explainer) missingFrom(policy resolve.Policy, undeclared []string) (missing, misspelled []string) {
	add := func(name string, candidates []string) {
		if hasContainer(x.Pod.Pod, name) {
			return
		}
		if meant := similarTo(name, candidates); meant != "" {
			name = fmt.Sprintf("%s (did you mean %s?)", name, meant)
			misspelled = append(misspelled, name)
		}
		missing = append(missing, name)
	}
	var unlisted []string
	for i := range x.Pod.Pod.Spec.Containers {
		if name := x.Pod.Pod.Spec.Containers[i].Name; !policy.NamesMain(x.Pod.Pod, name) {
			unlisted = append(unlisted, name)
		}
	}
	for _, sidecar := range policy.Spec.Sidecars {
		if !x.isInjected(sidecar.Name) {
			add(sidecar.Name, undeclared)
		}
	}
	for _, main := range policy.Spec.MainContainers {
		add(string(main), unlisted)
	}
	return missing, misspelled
}

func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named)
}

func finding(severity Severity, reason v1alpha1.Reason, container, message string) Finding {
	return Finding{Severity: severity, Reason: reason, Container: container, Message: message, Hint: hints[reason]}
}
