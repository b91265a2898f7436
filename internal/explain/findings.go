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

// Why a pod is never acted on.
const (
	leftAlone        = "restartPolicy is Always (the default of pods), and only pods with Never or OnFailure are acted on"
	nothingToWaitFor = "every container is declared a sidecar, so nothing says when the pod is done"
)

// overdue is how long an action may be due before its absence is a finding. The operator needs a moment, and longer
// while the pod's status keeps changing.
const overdue = 45 * time.Second

// findings lists what goes wrong, would go wrong or is good to know.
func (x *explainer) findings(report Report) []Finding {
	all := append([]Finding{}, x.fromWarnings()...)
	if !IsJobType(x.Pod.Pod) {
		if x.isDeclared() {
			all = append(all, finding(SeverityProblem, v1alpha1.ReasonRestartPolicyAlways, "", leftAlone))
		}
		return all
	}
	if len(x.view.Targets) > 0 && len(x.view.Mains) == 0 {
		all = append(all, finding(SeverityProblem, v1alpha1.ReasonNoMainContainer, "", nothingToWaitFor))
	}
	if !x.isOver() {
		all = append(all, x.fromDryRun()...)
		if len(x.view.Mains) > 0 && (x.Template || x.decision.MainsDone.IsZero()) {
			all = append(all, x.fromWays(report)...)
		}
		all = append(all, x.fromFailurePolicy()...)
		all = append(all, x.fromDeletion()...)
		all = append(all, x.mayHang()...)
		all = append(all, x.fromEnvFrom()...)
	}
	all = append(all, x.fromDecision(all)...)
	all = append(all, x.fromLosses()...)
	return append(all, x.fromMissing()...)
}

func (x *explainer) isDeclared() bool {
	return len(x.view.Targets) > 0 || x.resolution.DryRun != nil || len(x.resolution.Warnings) > 0
}

// isOver reports whether the pod has come to its end, so that what might have gone wrong is of no interest any more.
func (x *explainer) isOver() bool {
	return !x.Template && (x.Pod.Pod.DeletionTimestamp != nil || plan.HasTerminalPhase(x.Pod.Pod) || x.decision.Stage == plan.StageTerminated)
}

func (x *explainer) fromWarnings() []Finding {
	var all []Finding
	for _, warning := range x.resolution.Warnings {
		severity := SeverityProblem
		if warning.Reason == v1alpha1.ReasonNativeSidecar {
			severity = SeverityNote
		} else if target := x.view.Target(warning.Container); target != nil && target.Policy != nil {
			severity = SeverityWarning
		}
		all = append(all, finding(severity, warning.Reason, warning.Container, warning.Message))
	}
	return all
}

// fromDryRun says what policies would do that do nothing yet.
func (x *explainer) fromDryRun() []Finding {
	if x.resolution.DryRun == nil {
		return nil
	}
	var all []Finding
	for _, target := range x.resolution.DryRun.Targets {
		if target.Policy == nil || !x.isDryRun(*target.Policy) {
			continue
		}
		severity, message := SeverityNote, fmt.Sprintf("%s would decide over container %s, and has enforcement DryRun", target.Policy, target.Container)
		if x.view.Target(target.Container) == nil {
			severity, message = SeverityWarning, fmt.Sprintf("%s names container %s, but has enforcement DryRun: nothing is done", target.Policy, target.Container)
		}
		all = append(all, finding(severity, v1alpha1.ReasonDryRun, target.Container, message))
	}
	if !x.Template && len(all) > 0 {
		snapshot := x.snapshot()
		snapshot.View = *x.resolution.DryRun
		if decision := plan.Next(snapshot, x.now); len(decision.Actions) > 0 {
			all = append(all, finding(SeverityWarning, v1alpha1.ReasonWouldTerminate, "", "with enforcement Enforce: "+decision.Message))
		}
	}
	return all
}

func (x *explainer) isDryRun(ref resolve.PolicyRef) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool {
		return p.Ref == ref && !p.Spec.Enforcement.Acts()
	})
}

// fromDecision says what has gone wrong. Reasons that were found already are not repeated.
func (x *explainer) fromDecision(found []Finding) []Finding {
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
			continue // the pod is stuck, and that is a finding already
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
			fmt.Sprintf("sidecars could have been told to stop %s ago, and were not: is the operator running?", Age(due))))
	}
	return all
}

// overdueBy returns for how long there has been something to do that nobody did.
func (x *explainer) overdueBy() time.Duration {
	if len(x.decision.Actions) == 0 || len(x.decision.Failures) > 0 {
		return 0
	}
	since := x.decision.MainsDone
	var longest time.Duration
	for _, target := range x.view.Targets {
		longest = max(longest, target.Drain)
	}
	since = since.Add(longest)
	for _, attempt := range x.Attempts {
		if attempt.Started.After(since) {
			since = attempt.Started
		}
	}
	return x.now.Sub(since)
}

// fromLosses says which policy lost a container to which, and why.
func (x *explainer) fromLosses() []Finding {
	var all []Finding
	for _, loss := range x.resolution.Losses {
		all = append(all, finding(SeverityNote, v1alpha1.ReasonOverridden, loss.Container,
			fmt.Sprintf("%s decides over container %s%s, not %s: %s", loss.Winner, loss.Container, andOthers(loss.Others), loss.Loser, x.whyLost(loss))))
	}
	return all
}

// andOthers says that there are so many more, and nothing for none.
func andOthers(others int) string {
	if others == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", others)
}

// whyLost gives the rule by which the winner won, in the order of internal/resolve.
func (x *explainer) whyLost(loss resolve.Loss) string {
	find := func(ref resolve.PolicyRef) resolve.Policy {
		return x.Policies[slices.IndexFunc(x.Policies, func(p resolve.Policy) bool { return p.Ref == ref })]
	}
	winner, loser := find(loss.Winner), find(loss.Loser)
	switch {
	case winner.Ref.Kind != loser.Ref.Kind:
		return "a namespaced policy goes before a cluster one"
	case winner.Spec.Priority != loser.Spec.Priority:
		return fmt.Sprintf("its priority is %d, the other's %d", winner.Spec.Priority, loser.Spec.Priority)
	case !winner.Created.Equal(loser.Created):
		return "both have the same priority, and it is older"
	}
	return "both have the same priority and age, and its name comes first"
}

// fromMissing says which containers policies name that the pod does not have. Policies often name more than one pod has,
// so that for a pod, to which webhooks add nothing any more, it is of interest only if a policy names none that it has.
func (x *explainer) fromMissing() []Finding {
	var all []Finding
	for _, policy := range x.Policies {
		var missing []string
		for _, sidecar := range policy.Spec.Sidecars {
			if !hasContainer(x.Pod.Pod, sidecar.Name) {
				missing = append(missing, sidecar.Name)
			}
		}
		for _, main := range policy.Spec.MainContainers {
			if !hasContainer(x.Pod.Pod, string(main)) {
				missing = append(missing, string(main))
			}
		}
		if len(missing) == 0 || !x.Template && len(missing) < len(policy.Spec.Sidecars)+len(policy.Spec.MainContainers) {
			continue
		}
		message := fmt.Sprintf("%s names %s, which the pod does not have", policy.Ref, strings.Join(missing, ", "))
		if x.Template {
			message += " unless a webhook adds it"
		}
		all = append(all, finding(SeverityNote, v1alpha1.ReasonContainerNotFound, "", message))
	}
	return all
}

func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named)
}

func finding(severity Severity, reason v1alpha1.Reason, container, message string) Finding {
	return Finding{Severity: severity, Reason: reason, Container: container, Message: message, Hint: hints[reason]}
}
