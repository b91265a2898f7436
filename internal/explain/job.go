// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// checkFailurePolicy finds rules of the Job's podFailurePolicy that match a stopped sidecar after a main container has failed.
// Kubernetes compares a rule without containerName with every container that exited non-zero, native sidecars included
// (pkg/controller/job/pod_failure_policy.go).
func (x *explainer) checkFailurePolicy() {
	if x.FailurePolicy == nil || x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || !x.mainMayFail() {
		return
	}
	regular, native := x.stoppedAfterFailure()
	rules := x.FailurePolicy.Rules
	// Kubernetes counts a failure that matches no rule, so trailing Count rules make no difference.
	for len(rules) > 0 && rules[len(rules)-1].Action == batchv1.PodFailurePolicyActionCount {
		rules = rules[:len(rules)-1]
	}
	for i := range rules {
		if rules[i].OnExitCodes == nil {
			continue
		}
		if x.matchesEveryFailure(rules[i].OnExitCodes) {
			break // a failed main container always matches, so later rules are never reached
		}
		x.checkRule(&rules[i], i, regular, native)
	}
}

// mainMayFail reports whether a main container has failed, or none has ended yet.
func (x *explainer) mainMayFail() bool {
	if x.Template || x.decision.MainsDone.IsZero() {
		return len(x.view.Mains) > 0
	}
	return slices.ContainsFunc(x.Pod.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return slices.Contains(x.view.Mains, s.Name) && s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}

// stoppedAfterFailure lists the sidecars that keep their own exit code on some node type of the pod after a main container has failed,
// and the native sidecars. A sidecar with a swapped image exits with 0. Sidecars with exitCodePolicy Respect are left out: their exit code
// counts on purpose.
func (x *explainer) stoppedAfterFailure() (regular, native []string) {
	for _, sidecar := range x.view.Sidecars {
		keepsExitCode := func(on NodeModes) bool {
			options := plan.ModeOptions(x.snapshotOn(on, 1), sidecar)
			first := slices.IndexFunc(options, plan.ModeOption.Usable)
			return first >= 0 && options[first].Mode != v1alpha1.ModeImage
		}
		if sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyRespect && slices.ContainsFunc(x.nodes(), keepsExitCode) {
			regular = append(regular, sidecar.Container)
		}
	}
	for i := range x.Pod.Pod.Spec.InitContainers {
		if container := &x.Pod.Pod.Spec.InitContainers[i]; resolve.IsNativeSidecar(container) {
			native = append(native, container.Name)
		}
	}
	return regular, native
}

// matchesEveryFailure reports whether the rule matches every pod with a failed main container.
func (x *explainer) matchesEveryFailure(rule *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	ofMains := rule.ContainerName == nil || len(x.view.Mains) == 1 && *rule.ContainerName == x.view.Mains[0]
	return ofMains && rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn &&
		!slices.ContainsFunc(rule.Values, func(code int32) bool { return code != 0 })
}

// checkRule finds a rule that a sidecar matches. A rule that names a sidecar is intended, except for exit codes that only mean that it
// was stopped.
func (x *explainer) checkRule(rule *batchv1.PodFailurePolicyRule, index int, regular, native []string) {
	requirement := rule.OnExitCodes
	matched := func(name string) bool { return requirement.ContainerName == nil || *requirement.ContainerName == name }
	regular, native = filter(regular, matched), filter(native, matched)
	names := slices.Concat(regular, native)
	codes := filter([]int32{plan.ExitCodeSIGTERM, plan.ExitCodeSIGKILL}, func(code int32) bool { return matchesCode(requirement, code) })
	named := requirement.ContainerName != nil
	if len(names) == 0 || named && len(codes) == 0 || consequences[rule.Action] == "" {
		return
	}
	severity, exits := SeverityWarning, fmt.Sprintf("exits with %s when it is stopped", strings.Join(texts(codes), " or "))
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
	x.add(severity, v1alpha1.ReasonSidecarMatchesFailurePolicy, sidecar, "podFailurePolicy.rules[%d] (%s) %s: if a main container fails and %s, %s",
		index, describeRule(rule), matches, exits, consequences[rule.Action]).Hint = x.failurePolicyHint(named, len(native) == 0)
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
	codes, noun := safetext.List(texts(rule.OnExitCodes.Values), few, ", "), "exit codes"
	if rule.OnExitCodes.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn {
		codes = "other than " + codes
	}
	if len(rule.OnExitCodes.Values) == 1 {
		noun = "exit code"
	}
	return fmt.Sprintf("%s on %s %s", rule.Action, noun, codes)
}

// matchesCode reports whether the rule matches a container that exited with the code, which is not 0.
func matchesCode(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, code int32) bool {
	listed := slices.Contains(rule.Values, code)
	return rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed || rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed
}

// filter returns the elements that match.
func filter[T any](all []T, matches func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(element T) bool { return !matches(element) })
}

// texts returns the elements as text.
func texts[T any](all []T) []string {
	var texts []string
	for _, element := range all {
		texts = append(texts, fmt.Sprint(element))
	}
	return texts
}

// Deletion is when Kubernetes deletes a finished Job and its pods.
type Deletion struct {
	// Field is the field of the Job or CronJob that sets it, or the annotation.
	Field string
	After time.Duration
	// Hint says how to keep the pod, or is empty for fields.
	Hint string
}

// checkDeletion finds pods that may be deleted while their sidecars are still ending. A pod with a terminal phase counts as finished at
// once, and the API server deletes a finished pod without a grace period (pkg/registry/core/pod/strategy.go,
// CheckGracefulDelete). docs/teardown.md has measurements.
func (x *explainer) checkDeletion() {
	// These still run when the pod's phase is terminal.
	names := containersOf(filter(x.view.Sidecars, func(sidecar resolve.Sidecar) bool {
		return slices.ContainsFunc(x.nodeModes(sidecar), func(on NodeModes) bool { return on.startsWith(v1alpha1.ModePodPhase) })
	}))
	if len(names) == 0 {
		return
	}
	container := ""
	if len(names) == 1 {
		container = names[0]
	}
	grace := plan.GracePeriod(x.Pod.Pod)
	early := x.Deletion != nil && x.Deletion.After < grace
	if early {
		when := "as soon as"
		if x.Deletion.After > 0 {
			when = x.Deletion.After.String() + " after"
		}
		f := x.add(SeverityNote, v1alpha1.ReasonDeletedWhileEnding, container,
			"%s deletes the pod %s it reads as finished, while %s may still use the grace period of %s: the pod's token and log are deleted with the pod",
			x.Deletion.Field, when, strings.Join(names, ", "), grace)
		f.Hint = cmp.Or(x.Deletion.Hint, f.Hint)
	}
	// The Job controller removes its finalizer when it has counted the pod, and the garbage collector sets the others with the deletion.
	foreign := filter(x.Pod.Pod.Finalizers, func(name string) bool {
		return name != batchv1.JobTrackingFinalizer && name != metav1.FinalizerDeleteDependents && name != metav1.FinalizerOrphanDependents
	})
	if len(foreign) > 0 {
		severity := SeverityNote
		if early {
			severity = SeverityWarning
		}
		x.add(severity, v1alpha1.ReasonForeignFinalizer, container,
			"finalizer %s keeps the pod: if it is deleted just after its phase is terminal, the kubelet may kill %s after 2s instead of the grace period of %s",
			strings.Join(foreign, ", "), strings.Join(names, ", "), grace)
	}
}
