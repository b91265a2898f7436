// SPDX-License-Identifier: Apache-2.0

// Package rollup computes a policy's status from observations of its pods. It is pure: the same input gives the same
// bytes. Package controllers reads the pods and writes the status.
package rollup

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// maxRecent limits status.recentTerminations, maxMessage a condition's message, and maxListed the names in a column.
const (
	maxRecent  = 10
	maxMessage = 1024
	maxListed  = 3
)

// Tally counts what happened since the status was last written and is not visible in unfinished pods.
type Tally struct {
	Terminated, FailedAttempts int64
	// Last is the newest termination.
	Last time.Time
	// Recent is newest first.
	Recent []v1alpha1.RecentTermination
}

// Empty reports whether the tally adds nothing to a status.
func (t Tally) Empty() bool {
	return t.Terminated == 0 && t.FailedAttempts == 0 && len(t.Recent) == 0
}

// Merge returns the sum of both tallies, where t is the newer.
func (t Tally) Merge(older Tally) Tally {
	merged := Tally{
		Terminated:     t.Terminated + older.Terminated,
		FailedAttempts: t.FailedAttempts + older.FailedAttempts,
		Last:           t.Last,
		Recent:         newest(t.Recent, older.Recent),
	}
	if older.Last.After(merged.Last) {
		merged.Last = older.Last
	}
	return merged
}

func newest(recent, older []v1alpha1.RecentTermination) []v1alpha1.RecentTermination {
	all := slices.Concat(recent, older)
	return all[:min(len(all), maxRecent)]
}

// Policy is the part of the status's input that does not come from pods.
type Policy struct {
	Generation int64
	Spec       *v1alpha1.PolicySpec
	// Invalid is why the policy cannot be acted on, or nil.
	Invalid error
	// Unguarded means that the cluster has neither of the admission policies that decide outcomes and keep them.
	Unguarded bool
	// PrePull is the progress of pulling its images, or nil while the policy has no prePull.
	PrePull *prepull.Report
}

// Summarize returns the policy's status: the counts of unfinished pods, and the cumulative figures of the old status plus the
// tally. Conditions keep their transition times where they did not change.
func Summarize(policy Policy, old v1alpha1.PolicyStatus, pods PodSummary, tally Tally, now time.Time) v1alpha1.PolicyStatus {
	status := v1alpha1.PolicyStatus{
		ObservedGeneration:  policy.Generation,
		Mode:                resolve.ModesOf(policy.Spec),
		Sidecars:            sidecarsOf(policy.Spec),
		MatchedPods:         pods.matched,
		WaitingPods:         pods.waiting,
		StuckPods:           pods.stuck.pods,
		TerminatedPods:      old.TerminatedPods + tally.Terminated,
		FailedAttempts:      old.FailedAttempts + tally.FailedAttempts,
		LastTerminationTime: old.LastTerminationTime.DeepCopy(),
		RecentTerminations:  newest(tally.Recent, old.RecentTerminations),
		Conditions:          slices.Clone(old.Conditions),
	}
	if !policy.Spec.Enforcement.Acts() {
		status.DryRunPods = pods.terminating
	} else {
		status.TerminatingPods = pods.terminating
	}
	if last := status.LastTerminationTime; !tally.Last.IsZero() && (last == nil || last.Time.Before(tally.Last)) {
		status.LastTerminationTime = new(Timestamp(tally.Last))
	}
	for _, c := range conditions(policy, pods, status.TerminatedPods) {
		c.setIn(&status, policy.Generation, now)
	}
	return status
}

// sidecarsOf lists what the policy declares.
func sidecarsOf(spec *v1alpha1.PolicySpec) string {
	names, prefix := make([]string, 0, len(spec.Sidecars)+len(spec.MainContainers)), ""
	for _, entry := range spec.Sidecars {
		names = append(names, entry.Name)
	}
	for _, main := range spec.MainContainers {
		names, prefix = append(names, string(main)), "all but "
	}
	return prefix + safetext.List(names, maxListed, ",")
}

// Timestamp returns the time as the API server returns it: in UTC, in seconds.
func Timestamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// condition is a condition and whether it holds. While it does not hold it is absent, unless always is set.
type condition struct {
	kind    string
	holds   bool
	always  bool
	reason  v1alpha1.Reason
	message string
}

func (c condition) setIn(status *v1alpha1.PolicyStatus, generation int64, now time.Time) {
	if !c.holds && !c.always {
		meta.RemoveStatusCondition(&status.Conditions, c.kind)
		return
	}
	value := metav1.ConditionFalse
	if c.holds {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: c.kind, Status: value, Reason: string(c.reason), Message: safetext.Truncate(c.message, maxMessage),
		ObservedGeneration: generation, LastTransitionTime: Timestamp(now),
	})
}

func conditions(policy Policy, pods PodSummary, terminated int64) []condition {
	return []condition{
		ready(policy, pods, terminated),
		overridden(pods),
		degraded(policy, pods),
		{kind: v1alpha1.ConditionStalled, holds: policy.Invalid != nil, reason: v1alpha1.ReasonInvalidSelector, message: errorText(policy.Invalid)},
		prePulled(policy),
	}
}

// ready depends on the policy alone, because people other than its author write pods. Pods only choose between two reasons. After
// the last pod has finished, the message says how many pods the policy has terminated.
func ready(policy Policy, pods PodSummary, terminated int64) condition {
	c := condition{kind: v1alpha1.ConditionReady, always: true, holds: true}
	switch {
	case policy.Invalid != nil:
		c.holds, c.reason, c.message = false, v1alpha1.ReasonInvalidSelector, policy.Invalid.Error()
	case resolve.UnknownEnforcement(policy.Spec.Enforcement) != "":
		c.holds, c.reason, c.message = false, v1alpha1.ReasonUnknownSetting, resolve.UnknownEnforcement(policy.Spec.Enforcement)
	case policy.Spec.Enforcement == v1alpha1.EnforcementDryRun:
		c.reason = v1alpha1.ReasonDryRun
		c.message = fmt.Sprintf("nothing is written to pods; with enforcement Enforce, the sidecars of %d %s would be ended now",
			pods.terminating, plural(pods.terminating, "pod", "pods"))
	case pods.matched == 0:
		c.reason, c.message = v1alpha1.ReasonIdle, "no unfinished pod with restartPolicy Never or OnFailure matches now"
		if terminated > 0 {
			c.message += fmt.Sprintf("; sidecars of %d %s were terminated before", terminated, plural(terminated, "pod", "pods"))
		}
	default:
		c.reason, c.message = v1alpha1.ReasonEnforced, "the policy is enforced"
	}
	return c
}

func overridden(pods PodSummary) condition {
	c := condition{kind: v1alpha1.ConditionOverridden, reason: v1alpha1.ReasonOverridden}
	if overridden := pods.overridden; overridden.pods > 0 {
		override := overridden.example.Overrides[0]
		c.holds = true
		c.message = overridden.withOthers(fmt.Sprintf("%s takes precedence for %s of container %s in pod %s", override.By, override.Lost, override.Container, overridden.example.name()))
	}
	return c
}

// degraded reports stuck pods first, then pods whose injected containers are unknown, then that nothing keeps outcomes, then pods whose
// sidecars another mode ends.
func degraded(policy Policy, pods PodSummary) condition {
	c := condition{kind: v1alpha1.ConditionDegraded, holds: true}
	switch stuck, substituted := pods.stuck, pods.substituted; {
	case stuck.pods > 0:
		c.reason = stuck.example.Decision.Reason
		c.message = fmt.Sprintf("%d %s %s: %s", stuck.pods, plural(stuck.pods, "pod is stuck:", "pods are stuck, for example"),
			stuck.example.name(), stuck.example.Decision.Message)
	case pods.noTemplate.pods > 0:
		c.reason, c.message = v1alpha1.ReasonJobsForbidden, pods.noTemplate.withOthers(fmt.Sprintf("includeInjected has no effect on pod %s: the operator "+
			"may not get Jobs; install it with component include-injected, or with the chart's value includeInjected", pods.noTemplate.example.name()))
	case policy.Unguarded:
		c.reason, c.message = v1alpha1.ReasonOutcomeNotDecided, "a kubelet may take back the outcome of a pod, because the cluster has neither of the "+
			"admission policies sidecar-termination-outcome and sidecar-termination-phase; install them, see kubectl sidecar-termination check"
	case substituted.pods > 0:
		first := substituted.example.Substitutions[0]
		c.reason, c.message = first.Reason, substituted.withOthers(fmt.Sprintf("pod %s: %s", substituted.example.name(), first.Message))
	default:
		c.holds = false
	}
	return c
}

// prePulled is present, true or false, while the policy has prePull.
func prePulled(policy Policy) condition {
	c := condition{kind: v1alpha1.ConditionPrePulled}
	if report := policy.PrePull; report != nil {
		c.always, c.holds, c.reason, c.message = true, report.Holds, report.Reason, report.Message
	}
	return c
}

func plural[N int32 | int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
