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

// The exit codes of a container that is stopped: by SIGTERM, and by SIGKILL when its grace period is over.
const (
	exitOnSIGTERM int32 = 143
	exitOnSIGKILL int32 = 137
)

// failurePolicySidecars are the sidecars whose own exit code stands beside that of a failed main container.
type failurePolicySidecars struct {
	regular, native []string
}

// fromFailurePolicy says which rules of the Job's podFailurePolicy a stopped sidecar matches beside a failed main
// container. Kubernetes holds a rule against every container that ended non-zero, native sidecars included, unless it
// names one (pkg/controller/job/pod_failure_policy.go).
func (x *explainer) fromFailurePolicy() []Finding {
	if x.FailurePolicy == nil || x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || !x.mainMayFail() {
		return nil
	}
	sidecars, rules := x.besideFailedMain(), x.FailurePolicy.Rules
	// A failure that no rule matches is counted, so that the last rules that count make no difference.
	for len(rules) > 0 && rules[len(rules)-1].Action == batchv1.PodFailurePolicyActionCount {
		rules = rules[:len(rules)-1]
	}
	var all []Finding
	for i := range rules {
		if rules[i].OnExitCodes == nil {
			continue
		}
		if x.matchesEveryFailure(rules[i].OnExitCodes) {
			break // a failed main container matches it anyway, and the rules that follow decide nothing
		}
		all = append(all, x.seenBy(&rules[i], i, sidecars)...)
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

// besideFailedMain lists the sidecars that a mode stops which leaves their own exit code, on any kind of node that the pod
// may run on, and the native sidecars, which the kubelet stops. A swapped image exits with 0. The exit code of a sidecar
// that is respected is meant to count.
func (x *explainer) besideFailedMain() failurePolicySidecars {
	var sidecars failurePolicySidecars
	for _, target := range x.view.Targets {
		if target.ExitCodes != v1alpha1.ExitCodesRespect && slices.ContainsFunc(x.scenarios(), func(s scenario) bool {
			return x.keepsOwnExitCode(s, target)
		}) {
			sidecars.regular = append(sidecars.regular, target.Container)
		}
	}
	for i := range x.Pod.Pod.Spec.InitContainers {
		if container := &x.Pod.Pod.Spec.InitContainers[i]; isNativeSidecar(container) {
			sidecars.native = append(sidecars.native, container.Name)
		}
	}
	return sidecars
}

// keepsOwnExitCode reports whether the first mode for the target, once a main container has failed, is one that stops it.
func (x *explainer) keepsOwnExitCode(s scenario, target resolve.Target) bool {
	options := plan.ModeOptions(x.snapshotOf(s, 1), target)
	first := slices.IndexFunc(options, plan.ModeOption.Usable)
	return first >= 0 && options[first].Mode != v1alpha1.ModeImage
}

// matchesEveryFailure reports whether the rule matches every pod of which a main container has failed.
func (x *explainer) matchesEveryFailure(rule *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	ofMains := rule.ContainerName == nil || len(x.view.Mains) == 1 && *rule.ContainerName == x.view.Mains[0]
	return ofMains && rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn &&
		!slices.ContainsFunc(rule.Values, func(code int32) bool { return code != 0 })
}

// seenBy returns the finding on one rule, if it sees a sidecar. That a rule names a sidecar is on purpose, but for exit codes
// that mean no more than that it was stopped.
func (x *explainer) seenBy(rule *batchv1.PodFailurePolicyRule, index int, sidecars failurePolicySidecars) []Finding {
	requirement := rule.OnExitCodes
	seen := func(name string) bool { return requirement.ContainerName == nil || *requirement.ContainerName == name }
	regular, native := only(sidecars.regular, seen), only(sidecars.native, seen)
	names := slices.Concat(regular, native)
	codes := only([]int32{exitOnSIGTERM, exitOnSIGKILL}, func(code int32) bool { return matchesCode(requirement, code) })
	named := requirement.ContainerName != nil
	if len(names) == 0 || named && len(codes) == 0 || consequences[rule.Action] == "" {
		return nil
	}
	severity, ends := SeverityWarning, fmt.Sprintf("exits with %s when it is stopped", join(codes, " or "))
	if len(codes) == 0 {
		severity, ends = SeverityNote, "exits with a code that the rule matches when it is stopped"
	}
	who, sidecar := "sidecar "+names[0], names[0]
	if len(names) > 1 {
		who, sidecar, ends = "sidecars "+strings.Join(names, ", "), "", "one of them "+ends
	} else {
		ends = "the sidecar " + ends
	}
	matches := "has no containerName and matches " + who + " too"
	if named {
		matches = "names " + who
	}
	f := finding(severity, v1alpha1.ReasonSidecarMatchesFailurePolicy, sidecar, fmt.Sprintf(
		"podFailurePolicy.rules[%d] (%s) %s: if a main container fails and %s, %s", index, describeRule(rule), matches, ends, consequences[rule.Action]))
	f.Hint = x.failurePolicyHint(named, len(native) == 0)
	return []Finding{f}
}

// consequences say what the actions of rules lead to. A manifest may have others, which the API server refuses.
var consequences = map[batchv1.PodFailurePolicyAction]string{
	batchv1.PodFailurePolicyActionIgnore:    "the failure is not counted, and a main container that always fails is tried again without end",
	batchv1.PodFailurePolicyActionFailJob:   "the Job fails at once",
	batchv1.PodFailurePolicyActionFailIndex: "the index fails at once",
	batchv1.PodFailurePolicyActionCount:     "the failure is counted, whatever later rules say",
}

// failurePolicyHint says what to write. A quick-exit image helps where no native sidecar matches the rule.
func (x *explainer) failurePolicyHint(named, imageHelps bool) string {
	hint := "write the rule once for each main container, with its name in onExitCodes.containerName"
	switch {
	case named:
		hint = "leave the rule out, or take these exit codes out of it"
	case len(x.view.Mains) == 1:
		hint = fmt.Sprintf("write containerName: %s into onExitCodes of the rule", x.view.Mains[0])
	}
	if imageHelps {
		hint += ", or set mode to Auto and an image that covers the command of the sidecar, which then exits with 0"
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

// only returns those of the elements that are wanted.
func only[T any](all []T, wanted func(T) bool) []T {
	var some []T
	for _, element := range all {
		if wanted(element) {
			some = append(some, element)
		}
	}
	return some
}

func join(codes []int32, separator string) string {
	var texts []string
	for _, code := range codes {
		texts = append(texts, fmt.Sprint(code))
	}
	return strings.Join(texts, separator)
}
