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
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// maxRecent is the bound of status.recent, maxMessage that of a condition's message.
const (
	maxRecent  = 10
	maxMessage = 1024
)

// Observation is one live pod that the policy selects and of which it names a container.
type Observation struct {
	Namespace, Pod string
	// Governs is true when the policy decides over at least one container of the pod.
	Governs bool
	// Decision is what was decided for the pod; for a DryRun policy what would be.
	Decision plan.Decision
	// Losses are the containers that the policy names and another policy decides over.
	Losses []resolve.Loss
	// Substitutions are those of the containers that the policy governs.
	Substitutions []plan.Substitution
}

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
}

// Summarize returns the policy's status: counts from the observations, whose order is of no account, on top of the
// cumulative figures of the old status. Conditions keep their transition times where they did not change.
func Summarize(policy Policy, old v1alpha1.PolicyStatus, observations []Observation, tally Tally, now time.Time) v1alpha1.PolicyStatus {
	observations = slices.Clone(observations)
	slices.SortFunc(observations, func(a, b Observation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	status := v1alpha1.PolicyStatus{
		ObservedGeneration:  policy.Generation,
		Mode:                cmp.Or(policy.Spec.Mode, resolve.DefaultMode),
		MatchedPods:         int32(len(observations)),
		TerminatedPods:      old.TerminatedPods + tally.Terminated,
		FailedPods:          old.FailedPods + tally.Failed,
		LastTerminationTime: old.LastTerminationTime.DeepCopy(),
		Recent:              newest(tally.Recent, old.Recent),
		Conditions:          slices.Clone(old.Conditions),
	}
	if last := status.LastTerminationTime; !tally.Last.IsZero() && (last == nil || last.Time.Before(tally.Last)) {
		status.LastTerminationTime = &metav1.Time{Time: tally.Last.UTC().Truncate(time.Second)}
	}
	dryRun := policy.Spec.Enforcement == v1alpha1.EnforcementDryRun
	for _, o := range observations {
		if o.Governs {
			count(&status, o.Decision.Stage, dryRun)
		}
	}
	for _, c := range conditions(policy, status, observations) {
		c.setIn(&status, policy.Generation, now)
	}
	return status
}

func count(status *v1alpha1.PolicyStatus, stage plan.Stage, dryRun bool) {
	switch {
	case stage == plan.StageWaiting:
		status.WaitingPods++
	case stage == plan.StageStuck:
		status.StuckPods++
	case stage == plan.StageTerminating && dryRun:
		status.DryRunPods++
	case stage == plan.StageTerminating:
		status.TerminatingPods++
	}
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

func conditions(policy Policy, status v1alpha1.PolicyStatus, observations []Observation) []condition {
	return []condition{
		ready(policy, status, observations),
		overridden(observations),
		degraded(observations),
		{kind: v1alpha1.ConditionStalled, holds: policy.Invalid != nil, reason: v1alpha1.ReasonInvalidSelector, message: errorText(policy.Invalid)},
	}
}

func ready(policy Policy, status v1alpha1.PolicyStatus, observations []Observation) condition {
	c := condition{kind: v1alpha1.ConditionReady, always: true, holds: true}
	stuck := slices.IndexFunc(observations, func(o Observation) bool { return o.Governs && o.Decision.Stage == plan.StageStuck })
	switch {
	case policy.Invalid != nil:
		c.holds, c.reason, c.message = false, v1alpha1.ReasonInvalidSelector, policy.Invalid.Error()
	case stuck >= 0:
		o := observations[stuck]
		c.holds, c.reason = false, o.Decision.Reason
		c.message = fmt.Sprintf("%d %s stuck, among them %s/%s: %s", status.StuckPods, plural(status.StuckPods, "pod is", "pods are"), o.Namespace, o.Pod, o.Decision.Message)
	case policy.Spec.Enforcement == v1alpha1.EnforcementDryRun:
		c.reason, c.message = v1alpha1.ReasonDryRun, "nothing is written to pods; set enforcement to Enforce to act"
	case status.MatchedPods == 0:
		c.reason, c.message = v1alpha1.ReasonNoPodsMatched, "no unfinished pod with restartPolicy Never or OnFailure matches"
	default:
		c.reason, c.message = v1alpha1.ReasonInForce, "the policy is in force"
	}
	return c
}

func overridden(observations []Observation) condition {
	c := condition{kind: v1alpha1.ConditionOverridden, reason: v1alpha1.ReasonOverridden}
	pods := int32(0)
	for _, o := range observations {
		if len(o.Losses) == 0 {
			continue
		}
		if pods++; pods == 1 {
			c.message = fmt.Sprintf("container %s of pod %s/%s is decided over by %s", o.Losses[0].Container, o.Namespace, o.Pod, o.Losses[0].Winner)
		}
	}
	c.holds = pods > 0
	c.message = withOthers(c.message, pods)
	return c
}

func degraded(observations []Observation) condition {
	c := condition{kind: v1alpha1.ConditionDegraded, reason: v1alpha1.ReasonNoUsableMode}
	pods := int32(0)
	for _, o := range observations {
		switch {
		case len(o.Substitutions) > 0:
			if pods++; pods == 1 {
				c.reason = o.Substitutions[0].Reason
				c.message = fmt.Sprintf("pod %s/%s: %s", o.Namespace, o.Pod, o.Substitutions[0].Message)
			}
		case o.Governs && o.Decision.Reason == v1alpha1.ReasonNoUsableMode:
			if pods++; pods == 1 {
				c.message = fmt.Sprintf("pod %s/%s: %s", o.Namespace, o.Pod, o.Decision.Message)
			}
		}
	}
	c.holds = pods > 0
	c.message = withOthers(c.message, pods)
	return c
}

func withOthers(message string, pods int32) string {
	if pods > 1 {
		return fmt.Sprintf("%s, and %d more %s", message, pods-1, plural(pods-1, "pod", "pods"))
	}
	return message
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
