// SPDX-License-Identifier: Apache-2.0

// Package rollup turns what was observed of a policy's pods into the policy's status. It is pure: the same input gives
// the same bytes. Reading pods and writing the status is the business of controllers.
package rollup

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// maxRecent is the bound of status.recent, maxMessage that of a condition's message.
const (
	maxRecent  = 10
	maxMessage = 1024
)

// Tally is what has come about since the status was last written and cannot be seen in live pods.
type Tally struct {
	Terminated, Failed int64
	Last               time.Time
	// Recent is newest first.
	Recent []v1alpha1.RecentTermination
}

// Empty reports whether there is nothing to add.
func (t Tally) Empty() bool {
	return t.Terminated == 0 && t.Failed == 0 && len(t.Recent) == 0
}

// Merge returns the two tallies as one, where t is the newer.
func (t Tally) Merge(older Tally) Tally {
	merged := Tally{
		Terminated: t.Terminated + older.Terminated,
		Failed:     t.Failed + older.Failed,
		Last:       t.Last,
		Recent:     newest(t.Recent, older.Recent),
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

// Policy is what the status says of the policy itself.
type Policy struct {
	Generation int64
	Spec       *v1alpha1.PolicySpec
	// Invalid is why the policy cannot be acted on, or nil.
	Invalid error
	// PrePull is how far the pulling of its images is, or nil while it has none pulled.
	PrePull *prepull.Report
}

// Summarize returns the policy's status: counts from what is seen of live pods on top of the cumulative figures of the old
// status. Conditions keep their transition times where they did not change.
func Summarize(policy Policy, old v1alpha1.PolicyStatus, census Census, tally Tally, now time.Time) v1alpha1.PolicyStatus {
	status := v1alpha1.PolicyStatus{
		ObservedGeneration:  policy.Generation,
		Mode:                cmp.Or(policy.Spec.Mode, resolve.DefaultMode),
		MatchedPods:         census.matched,
		WaitingPods:         census.waiting,
		StuckPods:           census.stuck.pods,
		TerminatedPods:      old.TerminatedPods + tally.Terminated,
		FailedAttempts:      old.FailedAttempts + tally.Failed,
		LastTerminationTime: old.LastTerminationTime.DeepCopy(),
		Recent:              newest(tally.Recent, old.Recent),
		Conditions:          slices.Clone(old.Conditions),
	}
	if !policy.Spec.Enforcement.Acts() {
		status.DryRunPods = census.terminating
	} else {
		status.TerminatingPods = census.terminating
	}
	if last := status.LastTerminationTime; !tally.Last.IsZero() && (last == nil || last.Time.Before(tally.Last)) {
		status.LastTerminationTime = &metav1.Time{Time: tally.Last.UTC().Truncate(time.Second)}
	}
	for _, c := range conditions(policy, census) {
		c.setIn(&status, policy.Generation, now)
	}
	return status
}

// condition is a condition and whether it holds. One that is abnormal when true is absent while it does not hold.
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
		Type: c.kind, Status: value, Reason: string(c.reason), Message: bounded(c.message),
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	})
}

func conditions(policy Policy, census Census) []condition {
	return []condition{
		ready(policy, census),
		overridden(census),
		degraded(census),
		{kind: v1alpha1.ConditionStalled, holds: policy.Invalid != nil, reason: v1alpha1.ReasonInvalidSelector, message: errorText(policy.Invalid)},
		prePulled(policy),
	}
}

// ready is about the policy alone. A pod must not change it, for others than the policy's author write pods.
func ready(policy Policy, census Census) condition {
	c := condition{kind: v1alpha1.ConditionReady, always: true, holds: true}
	switch {
	case policy.Invalid != nil:
		c.holds, c.reason, c.message = false, v1alpha1.ReasonInvalidSelector, policy.Invalid.Error()
	case resolve.UnknownEnforcement(policy.Spec.Enforcement) != "":
		c.holds, c.reason, c.message = false, v1alpha1.ReasonUnknownSetting, resolve.UnknownEnforcement(policy.Spec.Enforcement)
	case policy.Spec.Enforcement == v1alpha1.EnforcementDryRun:
		c.reason, c.message = v1alpha1.ReasonDryRun, "nothing is written to pods; set enforcement to Enforce to act"
	case census.matched == 0:
		c.reason, c.message = v1alpha1.ReasonNoPodsMatched, "no unfinished pod with restartPolicy Never or OnFailure matches"
	default:
		c.reason, c.message = v1alpha1.ReasonInForce, "the policy is in force"
	}
	return c
}

func overridden(census Census) condition {
	c := condition{kind: v1alpha1.ConditionOverridden, reason: v1alpha1.ReasonOverridden}
	if overridden := census.overridden; overridden.pods > 0 {
		loss := overridden.example.Losses[0]
		c.holds = true
		c.message = overridden.withOthers(fmt.Sprintf("container %s of pod %s is decided over by %s", loss.Container, overridden.example.name(), loss.Winner))
	}
	return c
}

// degraded gives pods that are stuck before those whose sidecars another mode ends.
func degraded(census Census) condition {
	c := condition{kind: v1alpha1.ConditionDegraded, holds: true}
	switch stuck, substituted := census.stuck, census.substituted; {
	case stuck.pods > 0:
		c.reason = stuck.example.Decision.Reason
		c.message = fmt.Sprintf("%d %s %s: %s", stuck.pods, plural(stuck.pods, "pod is stuck:", "pods are stuck, for example"),
			stuck.example.name(), stuck.example.Decision.Message)
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

func plural(n int32, one, many string) string {
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

// bounded cuts a message that is too long, between two characters.
func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len("...")
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}
