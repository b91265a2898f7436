// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// stoppedSidecars are the sidecars that keep their own exit code in a pod with a failed main container.
type stoppedSidecars struct {
	regular, native []string
}

// checkFailurePolicy finds rules of the Job's podFailurePolicy that match a stopped sidecar after a main container has failed.
// Kubernetes compares a rule without containerName with every container that exited non-zero, native sidecars included
// (pkg/controller/job/pod_failure_policy.go).
func (x *explainer) checkFailurePolicy() []Finding {
	if x.FailurePolicy == nil || x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || !x.mainMayFail() {
		return nil
	}
	sidecars, rules := x.stoppedSidecarsAfterFailure(), x.FailurePolicy.Rules
	// Kubernetes counts a failure that matches no rule, so trailing Count rules make no difference.
	for len(rules) > 0 && rules[len(rules)-1].Action == batchv1.PodFailurePolicyActionCount {
		rules = rules[:len(rules)-1]
	}
	var all []Finding
	for i := range rules {
		if rules[i].OnExitCodes == nil {
			continue
		}
		if x.matchesEveryFailure(rules[i].OnExitCodes) {
			break // a failed main container always matches, so later rules are never reached
		}
		all = append(all, x.sidecarMatches(&rules[i], i, sidecars)...)
	}
	return all
}

// mainMayFail reports whether a main container has failed, or none has ended yet.
func (x *explainer) mainMayFail() bool {
	if len(x.view.Mains) == 0 {
		return false
	}
	if x.Template || x.decision.MainsDone.IsZero() {
		return true
	}
	return slices.ContainsFunc(x.Pod.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return slices.Contains(x.view.Mains, s.Name) && s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}

// stoppedSidecarsAfterFailure lists the sidecars that keep their own exit code on some node type of the pod, and the native
// sidecars. A sidecar with a swapped image exits with 0. Sidecars with exitCodes Respect are left out: their exit code counts on
// purpose.
func (x *explainer) stoppedSidecarsAfterFailure() stoppedSidecars {
	var sidecars stoppedSidecars
	for _, sidecar := range x.view.Sidecars {
		if sidecar.ExitCodes != v1alpha1.ExitCodesRespect && slices.ContainsFunc(x.scenarios(), func(s scenario) bool {
			return x.keepsOwnExitCode(s, sidecar)
		}) {
			sidecars.regular = append(sidecars.regular, sidecar.Container)
		}
	}
	for i := range x.Pod.Pod.Spec.InitContainers {
		if container := &x.Pod.Pod.Spec.InitContainers[i]; isNativeSidecar(container) {
			sidecars.native = append(sidecars.native, container.Name)
		}
	}
	return sidecars
}

// keepsOwnExitCode reports whether the first mode stops the sidecar, instead of swapping its image, after a main container
// has failed.
func (x *explainer) keepsOwnExitCode(s scenario, sidecar resolve.Sidecar) bool {
	options := plan.ModeOptions(x.snapshotOf(s, 1), sidecar)
	first := slices.IndexFunc(options, plan.ModeOption.Usable)
	return first >= 0 && options[first].Mode != v1alpha1.ModeImage
}

// matchesEveryFailure reports whether the rule matches every pod with a failed main container.
func (x *explainer) matchesEveryFailure(rule *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	ofMains := rule.ContainerName == nil || len(x.view.Mains) == 1 && *rule.ContainerName == x.view.Mains[0]
	return ofMains && rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn &&
		!slices.ContainsFunc(rule.Values, func(code int32) bool { return code != 0 })
}

// sidecarMatches returns the finding on one rule, if a sidecar matches it. A rule that names a sidecar is intended, except
// for exit codes that only mean that it was stopped.
func (x *explainer) sidecarMatches(rule *batchv1.PodFailurePolicyRule, index int, sidecars stoppedSidecars) []Finding {
	requirement := rule.OnExitCodes
	matched := func(name string) bool { return requirement.ContainerName == nil || *requirement.ContainerName == name }
	regular, native := filter(sidecars.regular, matched), filter(sidecars.native, matched)
	names := slices.Concat(regular, native)
	codes := filter([]int32{plan.ExitCodeSIGTERM, plan.ExitCodeSIGKILL}, func(code int32) bool { return matchesCode(requirement, code) })
	named := requirement.ContainerName != nil
	if len(names) == 0 || named && len(codes) == 0 || consequences[rule.Action] == "" {
		return nil
	}
	severity, exits := SeverityWarning, fmt.Sprintf("exits with %s when it is stopped", join(codes, " or "))
	if len(codes) == 0 {
		severity, exits = SeverityNote, "exits with a code that the rule matches"
	}
	who, sidecar := "sidecar "+names[0], names[0]
	if len(names) > 1 {
		who, sidecar, exits = "sidecars "+strings.Join(names, ", "), "", "one of them "+exits
	} else {
		exits = "the sidecar " + exits
	}
	matches := "has no containerName and also matches " + who
	if named {
		matches = "names " + who
	}
	f := finding(severity, v1alpha1.ReasonSidecarMatchesFailurePolicy, sidecar, fmt.Sprintf(
		"podFailurePolicy.rules[%d] (%s) %s: if a main container fails and %s, %s", index, describeRule(rule), matches, exits, consequences[rule.Action]))
	f.Hint = x.failurePolicyHint(named, len(native) == 0)
	return []Finding{f}
}

// consequences describe the actions of rules. The API server rejects other actions.
var consequences = map[batchv1.PodFailurePolicyAction]string{
	batchv1.PodFailurePolicyActionIgnore:    "the failure is not counted, and a main container that always fails is retried forever",
	batchv1.PodFailurePolicyActionFailJob:   "the Job fails immediately",
	batchv1.PodFailurePolicyActionFailIndex: "the index fails immediately",
	batchv1.PodFailurePolicyActionCount:     "the failure is counted, and later rules are not evaluated",
}

// failurePolicyHint says how to change the rule. A quick-exit image helps if no native sidecar matches the rule.
func (x *explainer) failurePolicyHint(named, imageHelps bool) string {
	hint := "write one rule for each main container, with its name in onExitCodes.containerName"
	switch {
	case named:
		hint = "remove the rule, or remove these exit codes from it"
	case len(x.view.Mains) == 1:
		hint = fmt.Sprintf("set containerName: %s in onExitCodes of the rule", x.view.Mains[0])
	}
	if imageHelps {
		hint += ", or set mode to Auto and an image that covers the sidecar's command, so that it exits with 0"
	}
	return hint
}

// describeRule names the action and some of the codes of a rule.
func describeRule(rule *batchv1.PodFailurePolicyRule) string {
	const few = 5
	values := rule.OnExitCodes.Values
	codes := join(values[:min(few, len(values))], ", ")
	if more := len(values) - few; more > 0 {
		codes += fmt.Sprintf(" and %d more", more)
	}
	if rule.OnExitCodes.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn {
		codes = "other than " + codes
	}
	noun := "exit codes"
	if len(values) == 1 {
		noun = "exit code"
	}
	return fmt.Sprintf("%s on %s %s", rule.Action, noun, codes)
}

// matchesCode reports whether the rule matches a container that exited with the code, which is not 0.
func matchesCode(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, code int32) bool {
	listed := slices.Contains(rule.Values, code)
	return rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed ||
		rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed
}

func isNativeSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// filter returns the elements that match.
func filter[T any](all []T, matches func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(element T) bool { return !matches(element) })
}

func join(codes []int32, separator string) string {
	var texts []string
	for _, code := range codes {
		texts = append(texts, fmt.Sprint(code))
	}
	return strings.Join(texts, separator)
}
