// SPDX-License-Identifier: Apache-2.0

package rollup_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

var (
	before = time.Date(2026, time.March, 1, 11, 0, 0, 0, time.UTC)
	now    = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC)
)

func summarizePods(observations ...rollup.PodObservation) rollup.PodSummary {
	var summary rollup.PodSummary
	for _, o := range observations {
		summary.Add(o)
	}
	return summary
}

// policy returns an enforced policy at generation 3.
func policy(changes ...func(*rollup.Policy)) rollup.Policy {
	p := rollup.Policy{Generation: 3, Spec: &v1alpha1.PolicySpec{}}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func unguarded(p *rollup.Policy) { p.Unguarded = true }

func dryRun(p *rollup.Policy) { p.Spec.Enforcement = v1alpha1.EnforcementDryRun }

func invalid(message string) func(*rollup.Policy) {
	return func(p *rollup.Policy) { p.Invalid = errors.New(message) }
}

// seen returns a pod that the policy applies to.
func seen(pod string, stage plan.Stage, changes ...func(*rollup.PodObservation)) rollup.PodObservation {
	o := rollup.PodObservation{Namespace: "batch", Pod: pod, Applies: true, Decision: plan.Decision{Stage: stage}}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func notApplied(o *rollup.PodObservation) { o.Applies = false }

func because(reason v1alpha1.Reason, message string) func(*rollup.PodObservation) {
	return func(o *rollup.PodObservation) { o.Decision.Reason, o.Decision.Message = reason, message }
}

func lostTo(name string) func(*rollup.PodObservation) {
	return func(o *rollup.PodObservation) {
		o.Overrides = []resolve.Override{{Container: "proxy", By: resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: name}, Lost: resolve.LostRole}}
	}
}

func substituted(reason v1alpha1.Reason, message string) func(*rollup.PodObservation) {
	return func(o *rollup.PodObservation) {
		o.Substitutions = []plan.Substitution{{Container: "proxy", Reason: reason, Message: message}}
	}
}

func summarize(p rollup.Policy, observations ...rollup.PodObservation) v1alpha1.PolicyStatus {
	return rollup.Summarize(p, v1alpha1.PolicyStatus{}, summarizePods(observations...), rollup.Tally{}, now)
}

func TestCounts(t *testing.T) {
	all := []rollup.PodObservation{
		seen("waits", plan.StageWaiting), seen("drains", plan.StageWaiting), seen("ends", plan.StageTerminating),
		seen("hangs", plan.StageStuck), seen("ended", plan.StageTerminated), seen("ignored", plan.StageIgnored),
		seen("lost", plan.StageTerminating, notApplied), seen("lost-and-stuck", plan.StageStuck, notApplied),
	}
	tests := map[string]struct {
		policy       rollup.Policy
		observations []rollup.PodObservation
		want         v1alpha1.PolicyStatus
	}{
		"no pods": {policy(), nil, v1alpha1.PolicyStatus{}},
		"pods count by stage; pods of another policy only match": {
			policy(), all, v1alpha1.PolicyStatus{MatchedPods: 8, WaitingPods: 2, TerminatingPods: 1, StuckPods: 1},
		},
		"unknown enforcement: terminating pods count in dryRunPods": {
			policy(func(p *rollup.Policy) { p.Spec.Enforcement = "Audit" }), all,
			v1alpha1.PolicyStatus{MatchedPods: 8, WaitingPods: 2, DryRunPods: 1, StuckPods: 1},
		},
		"DryRun: terminating pods count in dryRunPods": {
			policy(dryRun), all, v1alpha1.PolicyStatus{MatchedPods: 8, WaitingPods: 2, DryRunPods: 1, StuckPods: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.ObservedGeneration = 3
			got := summarize(test.policy, test.observations...)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(v1alpha1.PolicyStatus{}, "Conditions", "Mode", "Sidecars")); diff != "" {
				t.Errorf("Summarize() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason v1alpha1.Reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: status, Reason: string(reason), Message: message,
			ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
	}
	ready := func(reason v1alpha1.Reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, reason, message)
	}
	degraded := func(reason v1alpha1.Reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reason, message)
	}
	notReady := func(reason v1alpha1.Reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	enforced := ready(v1alpha1.ReasonEnforced, "the policy is enforced")
	const noneWouldEnd = "nothing is written to pods; with enforcement Enforce, the sidecars of 0 pods would be ended now"
	const none = "no unfinished pod with restartPolicy Never or OnFailure matches now"

	tests := map[string]struct {
		policy       rollup.Policy
		observations []rollup.PodObservation
		want         []metav1.Condition
	}{
		"a policy without pods is ready": {policy(), nil, []metav1.Condition{ready(v1alpha1.ReasonIdle, none)}},
		"a policy with pods is ready":    {policy(), []rollup.PodObservation{seen("a", plan.StageWaiting)}, []metav1.Condition{enforced}},
		"a DryRun policy is ready with reason DryRun": {
			policy(dryRun), []rollup.PodObservation{seen("a", plan.StageWaiting)},
			[]metav1.Condition{ready(v1alpha1.ReasonDryRun, noneWouldEnd)},
		},
		"a DryRun policy says how many pods it would end": {
			policy(dryRun), []rollup.PodObservation{seen("a", plan.StageTerminating)}, []metav1.Condition{
				ready(v1alpha1.ReasonDryRun, "nothing is written to pods; with enforcement Enforce, the sidecars of 1 pod would be ended now"),
			},
		},
		"a policy with an unknown enforcement is not ready": {
			policy(func(p *rollup.Policy) { p.Spec.Enforcement = "Audit" }), []rollup.PodObservation{seen("a", plan.StageWaiting)},
			[]metav1.Condition{notReady(v1alpha1.ReasonUnknownSetting,
				`this version of the operator does not know enforcement "Audit" and treats it as DryRun; upgrade the operator, or set it to Enforce`)},
		},
		"a stuck pod: degraded and ready": {
			policy(), []rollup.PodObservation{seen("a", plan.StageStuck, because(v1alpha1.ReasonStuck, "every usable mode has failed"))},
			[]metav1.Condition{enforced, degraded(v1alpha1.ReasonStuck, "1 pod is stuck: batch/a: every usable mode has failed")},
		},
		"DryRun: a pod that would be stuck degrades the policy": {
			policy(dryRun), []rollup.PodObservation{seen("a", plan.StageStuck, because(v1alpha1.ReasonNoUsableMode, "no mode"))},
			[]metav1.Condition{
				ready(v1alpha1.ReasonDryRun, noneWouldEnd),
				degraded(v1alpha1.ReasonNoUsableMode, "1 pod is stuck: batch/a: no mode"),
			},
		},
		"several stuck pods: the first by name is reported": {
			policy(), []rollup.PodObservation{
				seen("b", plan.StageStuck, because(v1alpha1.ReasonStuck, "second")), seen("a", plan.StageStuck, because(v1alpha1.ReasonNoMainContainer, "first")),
			},
			[]metav1.Condition{enforced, degraded(v1alpha1.ReasonNoMainContainer, "2 pods are stuck, for example batch/a: first")},
		},
		"a stuck pod of another policy does not count": {
			policy(), []rollup.PodObservation{seen("a", plan.StageStuck, notApplied, because(v1alpha1.ReasonNoUsableMode, "no mode"))}, []metav1.Condition{enforced},
		},
		"a policy that cannot be parsed is stalled": {
			policy(invalid("parse spec.podSelector: no")), nil,
			[]metav1.Condition{
				notReady(v1alpha1.ReasonInvalidSelector, "parse spec.podSelector: no"),
				condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSelector, "parse spec.podSelector: no"),
			},
		},
		"an overridden policy names the overriding policy": {
			policy(), []rollup.PodObservation{seen("a", plan.StageWaiting, notApplied, lostTo("mesh"))},
			[]metav1.Condition{enforced, condition(v1alpha1.ConditionOverridden, metav1.ConditionTrue, v1alpha1.ReasonOverridden,
				"SidecarTerminationPolicy/mesh takes precedence for the role of container proxy in pod batch/a")},
		},
		"one more pod is reported in the singular": {
			policy(), []rollup.PodObservation{seen("b", plan.StageWaiting, lostTo("x")), seen("a", plan.StageWaiting, lostTo("mesh"))},
			[]metav1.Condition{enforced, condition(v1alpha1.ConditionOverridden, metav1.ConditionTrue, v1alpha1.ReasonOverridden,
				"SidecarTerminationPolicy/mesh takes precedence for the role of container proxy in pod batch/a, and 1 more pod")},
		},
		"an unusable mode: degraded and ready": {
			policy(), []rollup.PodObservation{
				seen("a", plan.StageTerminating, substituted(v1alpha1.ReasonCRRUnavailable, "mode CRR cannot be used")),
				seen("b", plan.StageTerminating, substituted(v1alpha1.ReasonVirtualNode, "other")),
				seen("c", plan.StageTerminating, substituted(v1alpha1.ReasonVirtualNode, "other")),
			},
			[]metav1.Condition{enforced, degraded(v1alpha1.ReasonCRRUnavailable, "pod batch/a: mode CRR cannot be used, and 2 more pods")},
		},
		"nothing keeps outcomes: degraded and ready": {
			policy(unguarded), []rollup.PodObservation{seen("c", plan.StageTerminating, substituted(v1alpha1.ReasonCRRUnavailable, "other"))},
			[]metav1.Condition{enforced, degraded(v1alpha1.ReasonOutcomeNotDecided, "a kubelet may take back the outcome of a pod, because the cluster has neither of "+
				"the admission policies sidecar-termination-outcome and sidecar-termination-phase; install them, see kubectl sidecar-termination check")},
		},
		"stuck pods are reported before all that": {
			policy(unguarded), []rollup.PodObservation{
				seen("a", plan.StageTerminating, substituted(v1alpha1.ReasonCRRUnavailable, "other")),
				seen("b", plan.StageStuck, substituted(v1alpha1.ReasonVirtualNode, "other"), because(v1alpha1.ReasonNoUsableMode, "no mode can end container proxy")),
			},
			[]metav1.Condition{enforced, degraded(v1alpha1.ReasonNoUsableMode, "1 pod is stuck: batch/b: no mode can end container proxy")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, summarize(test.policy, test.observations...).Conditions); diff != "" {
				t.Errorf("Conditions (-want +got):\n%s", diff)
			}
		})
	}
	for count, pods := range map[int64]string{1: "1 pod", 3: "3 pods"} {
		got := rollup.Summarize(policy(), v1alpha1.PolicyStatus{TerminatedPods: count}, rollup.PodSummary{}, rollup.Tally{}, now).Conditions
		want := []metav1.Condition{ready(v1alpha1.ReasonIdle, none+"; sidecars of "+pods+" were terminated before")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s, conditions (-want +got):\n%s", pods, diff)
		}
	}
}

func TestConditionsVanish(t *testing.T) {
	bad := []rollup.PodObservation{seen("a", plan.StageStuck, because(v1alpha1.ReasonNoUsableMode, "no mode"), lostTo("mesh"))}
	old := rollup.Summarize(policy(invalid("no")), v1alpha1.PolicyStatus{}, summarizePods(bad...), rollup.Tally{}, before)
	if len(old.Conditions) != 4 {
		t.Fatalf("conditions: got %d, want all 4", len(old.Conditions))
	}
	got := rollup.Summarize(policy(), old, rollup.PodSummary{}, rollup.Tally{}, now).Conditions
	if len(got) != 1 || got[0].Type != v1alpha1.ConditionReady || got[0].Status != metav1.ConditionTrue {
		t.Errorf("conditions: got %+v, want Ready alone", got)
	}
}

func TestTransitionTimes(t *testing.T) {
	stuck := seen("a", plan.StageStuck, because(v1alpha1.ReasonStuck, "one"))
	const ready, degraded = v1alpha1.ConditionReady, v1alpha1.ConditionDegraded
	tests := map[string]struct {
		kind     string
		old, new rollup.PodObservation
		want     time.Time
	}{
		"are kept while nothing changes":             {degraded, stuck, stuck, before},
		"are kept while only the message differs":    {degraded, stuck, seen("a", plan.StageStuck, because(v1alpha1.ReasonStuck, "two")), before},
		"are kept while only the reason differs":     {degraded, stuck, seen("a", plan.StageStuck, because(v1alpha1.ReasonNoUsableMode, "two")), before},
		"of Ready are kept when a pod becomes stuck": {ready, seen("a", plan.StageWaiting), stuck, before},
		"change with the status, in whole seconds":   {degraded, seen("a", plan.StageWaiting), stuck, now.Truncate(time.Second)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := rollup.Summarize(policy(), v1alpha1.PolicyStatus{}, summarizePods(test.old), rollup.Tally{}, before)
			kept := old.DeepCopy()
			got := rollup.Summarize(policy(), old, summarizePods(test.new), rollup.Tally{}, now)
			condition := meta.FindStatusCondition(got.Conditions, test.kind)
			if diff := cmp.Diff(test.want, condition.LastTransitionTime.Time); diff != "" {
				t.Errorf("LastTransitionTime (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(*kept, old); diff != "" {
				t.Errorf("the old status was modified (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	got := summarize(policy(invalid(strings.Repeat("a", 1025)))).Conditions[0].Message
	if want := strings.Repeat("a", 1021) + "..."; got != want {
		t.Errorf("got %d bytes, want the first 1,021 and an ellipsis", len(got))
	}
}

func TestDeclarationIsSummarized(t *testing.T) {
	entries := func(names ...string) (entries []v1alpha1.Sidecar) {
		for _, name := range names {
			entries = append(entries, v1alpha1.Sidecar{Name: name})
		}
		return entries
	}
	withModes := entries("a", "b", "c")
	withModes[0].Mode, withModes[2].Mode = v1alpha1.ModeImage, v1alpha1.ModeImage
	for name, test := range map[string]struct {
		spec           v1alpha1.PolicySpec
		mode, sidecars string
	}{
		"sidecars without a mode": {v1alpha1.PolicySpec{Sidecars: entries("a", "b")}, "Auto", "a,b"},
		"a mode of the policy":    {v1alpha1.PolicySpec{Sidecars: entries("a"), TerminationSettings: v1alpha1.TerminationSettings{Mode: v1alpha1.ModeCRR}}, "CRR", "a"},
		"modes of entries":        {v1alpha1.PolicySpec{Sidecars: withModes}, "Image,Auto", "a,b,c"},
		"many sidecars":           {v1alpha1.PolicySpec{Sidecars: entries("a", "b", "c", "d", "e")}, "Auto", "a,b,c and 2 more"},
		"main containers":         {v1alpha1.PolicySpec{MainContainers: []v1alpha1.ContainerName{"main"}}, "Auto", "all but main"},
		"main containers, a mode": {v1alpha1.PolicySpec{MainContainers: []v1alpha1.ContainerName{"a", "b"}, TerminationSettings: v1alpha1.TerminationSettings{Mode: v1alpha1.ModePodPhase}}, "PodPhase", "all but a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rollup.Summarize(rollup.Policy{Spec: &test.spec}, v1alpha1.PolicyStatus{}, rollup.PodSummary{}, rollup.Tally{}, now)
			if got.Mode != test.mode || got.Sidecars != test.sidecars {
				t.Errorf("mode %q, sidecars %q; want %q, %q", got.Mode, got.Sidecars, test.mode, test.sidecars)
			}
		})
	}
}

func results(prefix string, count int) []v1alpha1.RecentTermination {
	var recent []v1alpha1.RecentTermination
	for i := range count {
		recent = append(recent, v1alpha1.RecentTermination{Pod: fmt.Sprintf("%s-%d", prefix, i), Outcome: v1alpha1.OutcomeTerminated})
	}
	return recent
}

func TestCumulativeFigures(t *testing.T) {
	at := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	tests := map[string]struct {
		old   v1alpha1.PolicyStatus
		tally rollup.Tally
		want  v1alpha1.PolicyStatus
	}{
		"no new results: no change": {
			old:  v1alpha1.PolicyStatus{TerminatedPods: 5, FailedAttempts: 2, LastTerminationTime: at(before), RecentTerminations: results("old", 3)},
			want: v1alpha1.PolicyStatus{TerminatedPods: 5, FailedAttempts: 2, LastTerminationTime: at(before), RecentTerminations: results("old", 3)},
		},
		"new results are added, newest first": {
			old:   v1alpha1.PolicyStatus{TerminatedPods: 5, FailedAttempts: 2, LastTerminationTime: at(before), RecentTerminations: results("old", 2)},
			tally: rollup.Tally{Terminated: 3, FailedAttempts: 1, Last: now, Recent: results("new", 2)},
			want: v1alpha1.PolicyStatus{TerminatedPods: 8, FailedAttempts: 3, LastTerminationTime: at(now.Truncate(time.Second)),
				RecentTerminations: slices.Concat(results("new", 2), results("old", 2))},
		},
		"no more than ten results are kept": {
			old:   v1alpha1.PolicyStatus{RecentTerminations: results("old", 10)},
			tally: rollup.Tally{Recent: results("new", 4)},
			want:  v1alpha1.PolicyStatus{RecentTerminations: slices.Concat(results("new", 4), results("old", 6))},
		},
		"more than ten new results leave no old one": {
			old:   v1alpha1.PolicyStatus{RecentTerminations: results("old", 10)},
			tally: rollup.Tally{Recent: results("new", 12)},
			want:  v1alpha1.PolicyStatus{RecentTerminations: results("new", 10)},
		},
		"the last termination never moves back": {
			old:   v1alpha1.PolicyStatus{LastTerminationTime: at(now)},
			tally: rollup.Tally{Terminated: 1, Last: before},
			want:  v1alpha1.PolicyStatus{TerminatedPods: 1, LastTerminationTime: at(now)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := rollup.Summarize(policy(), test.old, rollup.PodSummary{}, test.tally, now)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(v1alpha1.PolicyStatus{}, "ObservedGeneration", "Conditions", "Mode", "Sidecars")); diff != "" {
				t.Errorf("Summarize() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	newer := rollup.Tally{Terminated: 1, FailedAttempts: 2, Last: now, Recent: results("new", 8)}
	older := rollup.Tally{Terminated: 10, FailedAttempts: 20, Last: before, Recent: results("old", 8)}
	want := rollup.Tally{Terminated: 11, FailedAttempts: 22, Last: now, Recent: slices.Concat(results("new", 8), results("old", 2))}
	if diff := cmp.Diff(want, newer.Merge(older)); diff != "" {
		t.Errorf("Merge() (-want +got):\n%s", diff)
	}
	if last := older.Merge(newer).Last; !last.Equal(now) {
		t.Errorf("Last: got %s, want the later one", last)
	}
	if diff := cmp.Diff(older, rollup.Tally{}.Merge(older)); diff != "" {
		t.Errorf("Merge() into nothing (-want +got):\n%s", diff)
	}
}

func TestEmpty(t *testing.T) {
	if !(rollup.Tally{}).Empty() {
		t.Error("nothing happened, and the tally is not empty")
	}
	for _, tally := range []rollup.Tally{{Terminated: 1}, {FailedAttempts: 1}, {Recent: results("of a DryRun", 1)}} {
		if tally.Empty() {
			t.Errorf("%+v is empty", tally)
		}
	}
}

// TestSameInputSameBytes shuffles the observations and summarizes a status twice. The result must not change, or the operator
// would write the status forever.
func TestSameInputSameBytes(t *testing.T) {
	observations := []rollup.PodObservation{
		seen("a", plan.StageStuck, because(v1alpha1.ReasonStuck, "one")), seen("b", plan.StageTerminating, substituted(v1alpha1.ReasonCRRUnavailable, "no")),
		seen("c", plan.StageWaiting, lostTo("mesh")), seen("d", plan.StageStuck, because(v1alpha1.ReasonStuck, "two")),
	}
	observations[3].Namespace = "another"
	tally := rollup.Tally{Terminated: 1, Last: before, Recent: results("new", 3)}
	first := rollup.Summarize(policy(), v1alpha1.PolicyStatus{}, summarizePods(observations...), tally, before)
	want := encode(t, first)
	for range observations {
		observations = append(observations[1:], observations[0])
		if diff := cmp.Diff(want, encode(t, rollup.Summarize(policy(), v1alpha1.PolicyStatus{}, summarizePods(observations...), tally, before))); diff != "" {
			t.Errorf("the order of the observations matters:\n%s", diff)
		}
	}
	var read v1alpha1.PolicyStatus
	if err := json.Unmarshal([]byte(want), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, encode(t, rollup.Summarize(policy(), read, summarizePods(observations...), rollup.Tally{}, now))); diff != "" {
		t.Errorf("a status that was written and read changes although nothing happened:\n%s", diff)
	}
}

func encode(t *testing.T, status v1alpha1.PolicyStatus) string {
	t.Helper()
	data, err := json.MarshalIndent(status, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPrePulledCondition(t *testing.T) {
	report := func(r *prepull.Report) rollup.Policy {
		return policy(func(p *rollup.Policy) { p.PrePull = r })
	}
	status := v1alpha1.PolicyStatus{}
	for _, step := range []struct {
		name   string
		report *prepull.Report
		want   string
	}{
		{"without prePull", nil, ""},
		{"while images are pulled", &prepull.Report{Reason: v1alpha1.ReasonPrePulling, Message: "on 1 of 3 nodes"}, "False PrePulling on 1 of 3 nodes"},
		{"once all images are pulled", &prepull.Report{Holds: true, Reason: v1alpha1.ReasonPrePulled, Message: "on 3 of 3 nodes"}, "True PrePulled on 3 of 3 nodes"},
		{"after prePull was removed", nil, ""},
	} {
		status = rollup.Summarize(report(step.report), status, rollup.PodSummary{}, rollup.Tally{}, now)
		got := ""
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPrePulled); c != nil {
			got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("%s: the policy is not ready; Ready must not depend on images", step.name)
		}
	}
}
