// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/timeline"
)

// done is when the main container of the tests ended.
var done = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) metav1.Time {
	return metav1.NewTime(done.Add(time.Duration(seconds) * time.Second))
}

// fixture is a pod of a Job with main and proxy. The operator wrote the phase 2 s after main's end, and the Job completed 2 s
// later, before proxy had ended.
type fixture struct{ timeline.Objects }

func newFixture() *fixture {
	f := &fixture{timeline.Objects{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: after(-600),
				OwnerReferences:   []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: ptr.To(true)}},
			},
			Status: corev1.PodStatus{
				Phase:      corev1.PodSucceeded,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: after(1)}},
				ContainerStatuses: []corev1.ContainerStatus{
					{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: after(0)}}},
					{Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: after(9)}}},
				},
			},
		},
		View: resolve.View{Mains: []string{"main"}, Sidecars: []resolve.Sidecar{{Container: "proxy"}}},
		Job: &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{UID: "job"},
			Status: batchv1.JobStatus{Succeeded: 1, Conditions: []batchv1.JobCondition{
				{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: after(4)},
			}},
		},
		Now: done.Add(time.Hour),
	}}
	f.attempt(v1alpha1.ModePodPhase, 2)
	f.manager(2, `{"f:metadata":{"f:annotations":{"f:sidecartermination.dev/pod-phase":{}}},"f:status":{"f:phase":{}}}`)
	return f
}

func (f *fixture) attempt(mode v1alpha1.Mode, seconds int) {
	f.Attempts = append(f.Attempts, plan.Attempt{Mode: mode, For: mode, Number: len(f.Attempts), Started: after(seconds).Time})
}

func (f *fixture) manager(seconds int, fields string) {
	at := after(seconds)
	f.Pod.ManagedFields = append(f.Pod.ManagedFields, metav1.ManagedFieldsEntry{Time: &at, FieldsV1: metav1.NewFieldsV1(fields)})
}

func (f *fixture) ended(container int, seconds int) {
	f.Pod.Status.ContainerStatuses[container].State.Terminated.FinishedAt = after(seconds)
}

// without removes the attempt, and what the operator wrote with it.
func (f *fixture) without() { f.Attempts, f.Pod.ManagedFields = nil, nil }

// byKubelet makes the attempt one of another mode, after which proxy ended at 5 s, and the kubelet wrote the phase at 6 s.
func (f *fixture) byKubelet(mode v1alpha1.Mode) {
	f.without()
	f.attempt(mode, 2)
	f.ended(1, 5)
	f.manager(6, `{"f:status":{"f:phase":{}}}`)
	f.Job.Status.Conditions[0].LastTransitionTime = after(8)
}

// summary writes each step as NAME PARTIES: START-END, in seconds since the end of the main container, or with the note.
func summary(t timeline.Timeline) []string {
	second := func(at *metav1.Time) string {
		if at == nil {
			return "?"
		}
		return fmt.Sprint(at.Sub(done).Seconds())
	}
	var lines []string
	for _, step := range t.Steps {
		var by []string
		for _, party := range step.By {
			by = append(by, string(party))
		}
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s%s %s: %s-%s %s", step.Name, step.Mode, strings.Join(by, ","),
			second(step.StartTime), second(step.EndTime), step.Note), " "))
	}
	if t.DurationSeconds != nil {
		lines = append(lines, fmt.Sprintf("total %d", *t.DurationSeconds))
	}
	return lines
}

func TestTimeline(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fixture)
		want   []string
	}{
		"a written phase": {
			func(*fixture) {},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "SidecarsEnded Node: 2-9", "total 4"},
		},
		"a swapped image": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage) },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: 1-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"a CRR": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeCRR) },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedCRR Operator: 1-2", "SidecarsEnded OpenKruise: 2-5",
				"PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"a CRR after the phase": {
			func(f *fixture) { f.attempt(v1alpha1.ModeCRR, 6) },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "AttemptStartedCRR Node: 2-6", "SidecarsEnded OpenKruise: 6-9", "total 4"},
		},
		"a phase that the kubelet replaced": {
			func(f *fixture) {
				f.byKubelet(v1alpha1.ModePodPhase)
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"a status that was written after the Job's end": {
			func(f *fixture) {
				f.byKubelet(v1alpha1.ModeImage)
				f.Pod.ManagedFields[0].Time = ptr.To(after(30))
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: 1-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: ?-? not recorded: the pod's status was written again later", "JobFinished Kubelet,JobController: 5-8", "total 8"},
		},
		"no managed fields": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.Pod.ManagedFields = nil },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: 1-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: ?-? not recorded", "JobFinished Kubelet,JobController: 5-8", "total 8"},
		},
		"a pod that was not ready before": {
			func(f *fixture) { f.Pod.Status.Conditions[0].LastTransitionTime = after(-60) },
			[]string{"Noticed Kubelet: ?-? not recorded", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Kubelet,Operator: 0-2",
				"PodFinished Operator: 2-2", "JobFinished JobController: 2-4", "SidecarsEnded Node: 2-9", "total 4"},
		},
		"a drain": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.View.Sidecars[0].Drain = 2 * time.Second },
			[]string{"Drained Policy: 0-2", "AttemptStartedImage Operator: 2-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"a drain that was shorter at the time": {
			func(f *fixture) { f.View.Sidecars[0].Drain = time.Hour },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "SidecarsEnded Node: 2-9", "total 4"},
		},
		"sidecars that ended by themselves": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.Attempts = nil },
			[]string{"Noticed Kubelet: 0-1", "SidecarsEnded Sidecars: 1-5", "PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"sidecars that ended before the main containers": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.Attempts = nil; f.ended(1, -5) },
			[]string{"Noticed Kubelet: 0-1", "PodFinished Kubelet: 1-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"no attempt yet": {
			func(f *fixture) {
				f.without()
				f.Pod.Status.Phase, f.Job.Status = corev1.PodRunning, batchv1.JobStatus{Active: 1}
				f.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStarted Operator: 1-? not yet"},
		},
		"a drain that is not over": {
			func(f *fixture) {
				f.without()
				f.Now, f.View.Sidecars[0].Drain = done.Add(time.Second), time.Minute
				f.Pod.Status.Phase, f.Job.Status = corev1.PodRunning, batchv1.JobStatus{Active: 1}
				f.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			},
			[]string{"Drained Policy: 0-? not yet"},
		},
		"a sidecar that still runs": {
			func(f *fixture) {
				f.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "SidecarsEnded Node: 2-? not yet", "total 4"},
		},
		"a sidecar that never started": {
			func(f *fixture) {
				f.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "SidecarsEnded Node: ?-? not recorded", "total 4"},
		},
		"a Job that waits for other pods": {
			func(f *fixture) { f.Job.Status = batchv1.JobStatus{Succeeded: 1, Active: 1} },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController,OtherPods: 2-? not yet", "SidecarsEnded Node: 2-9"},
		},
		"a Job that counted other pods": {
			func(f *fixture) { f.Job.Status.Failed = 1 },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController,OtherPods: 2-4", "SidecarsEnded Node: 2-9", "total 4"},
		},
		"another Job with the name of the owner": {
			func(f *fixture) { f.Job.UID = types.UID("another") },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"SidecarsEnded Node: 2-9", "total 2"},
		},
		"main containers without a time": {
			func(f *fixture) {
				f.Pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.Time{}
			},
			[]string{"Noticed Kubelet: ?-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-4", "SidecarsEnded Node: 2-9"},
		},
		"an epoch instead of a time": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.Attempts[0].Started = time.Unix(0, 0) },
			[]string{"Noticed Kubelet: ?-? not recorded", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: ?-? not recorded",
				"SidecarsEnded Kubelet,Operator,Node: 0-5", "PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"an attempt in the future": {
			func(f *fixture) {
				f.byKubelet(v1alpha1.ModeImage)
				f.Attempts[0].Started = f.Now.Add(time.Hour)
			},
			[]string{"Noticed Kubelet: ?-? not recorded", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: ?-? recorded time is in the future",
				"SidecarsEnded Kubelet,Operator,Node: 0-5", "PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"an attempt before the pod's creation": {
			func(f *fixture) { f.byKubelet(v1alpha1.ModeImage); f.Attempts[0].Started = done.Add(-time.Hour) },
			[]string{"Noticed Kubelet: ?-? not recorded", "Seen Operator: ?-? not recorded",
				"AttemptStartedImage Operator: ?-? recorded time is before the pod's creation",
				"SidecarsEnded Kubelet,Operator,Node: 0-5", "PodFinished Kubelet: 5-6", "JobFinished JobController: 6-8", "total 8"},
		},
		"a Job that completed before the pod": {
			func(f *fixture) { f.Job.Status.Conditions[0].LastTransitionTime = after(-5) },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: ?-? recorded time is before the previous step", "SidecarsEnded Node: 2-9"},
		},
		"clocks that differ by less than the resolution": {
			func(f *fixture) { f.Job.Status.Conditions[0].LastTransitionTime = after(1) },
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedPodPhase Operator: 1-2", "PodFinished Operator: 2-2",
				"JobFinished JobController: 2-2", "SidecarsEnded Node: 2-9", "total 2"},
		},
		"unreadable managed fields": {
			func(f *fixture) {
				f.byKubelet(v1alpha1.ModeImage)
				f.Pod.ManagedFields = []metav1.ManagedFieldsEntry{{}, {Time: ptr.To(after(6))}}
				f.manager(6, `[`)
				f.manager(6, `{"f:status":[],"f:metadata":{"f:annotations":1}}`)
			},
			[]string{"Noticed Kubelet: 0-1", "Seen Operator: ?-? not recorded", "AttemptStartedImage Operator: 1-2", "SidecarsEnded Node: 2-5",
				"PodFinished Kubelet: ?-? not recorded", "JobFinished Kubelet,JobController: 5-8", "total 8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			tc.change(f)
			got := timeline.New(timeline.Read(f.Objects))
			if diff := cmp.Diff(tc.want, summary(got)); diff != "" {
				t.Errorf("timeline (-want +got):\n%s", diff)
			}
			checkCoverage(t, got)
		})
	}
}

// checkCoverage checks that the steps up to the last one cover all of the timeline's duration.
func checkCoverage(t *testing.T, got timeline.Timeline) {
	t.Helper()
	last := timeline.StepPodFinished
	if slices.ContainsFunc(got.Steps, func(s timeline.Step) bool { return s.Name == timeline.StepJobFinished }) {
		last = timeline.StepJobFinished
	}
	covered := int64(0)
	for _, step := range got.Steps {
		if step.DurationSeconds != nil {
			covered += *step.DurationSeconds
		}
		if step.Name == last {
			break
		}
	}
	if total := got.DurationSeconds; total != nil && covered != *total {
		t.Errorf("the steps cover %d of %d s", covered, *total)
	}
}

func TestManyAttemptsAreBounded(t *testing.T) {
	f := newFixture()
	f.without()
	for i := range 1000 {
		f.attempt(v1alpha1.ModeCRR, i)
	}
	got := timeline.New(timeline.Read(f.Objects))
	var numbers []int
	for _, step := range got.Steps {
		if step.Name == timeline.StepAttemptStarted {
			numbers = append(numbers, step.Attempt)
		}
	}
	if diff := cmp.Diff([]int{1, 994, 995, 996, 997, 998, 999, 1000}, numbers); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestNoFacts(t *testing.T) {
	if diff := cmp.Diff(timeline.Timeline{ResolutionSeconds: 1}, timeline.New(timeline.Facts{PhaseWritten: true})); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}

func TestDurationsAreShownInSeconds(t *testing.T) {
	got := timeline.New(timeline.Facts{
		MainsDone: timeline.Moment{Time: done}, Seen: timeline.Moment{Time: done.Add(300 * time.Millisecond)},
		Attempts:      []timeline.Attempt{{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModeCRR, Number: 1, Started: timeline.Moment{Time: done.Add(time.Second)}}},
		SidecarsEnded: timeline.Moment{Time: done.Add(3500 * time.Millisecond)},
	})
	at := func(milliseconds int) *metav1.Time {
		return &metav1.Time{Time: done.Add(time.Duration(milliseconds) * time.Millisecond)}
	}
	want := timeline.Timeline{ResolutionSeconds: 1, StartTime: at(0), DurationSeconds: ptr.To[int64](3), Steps: []timeline.Step{
		{Name: timeline.StepSeen, By: []timeline.Party{timeline.PartyOperator}, StartTime: at(0), EndTime: at(300), DurationSeconds: ptr.To[int64](0)},
		{
			Name: timeline.StepAttemptStarted, By: []timeline.Party{timeline.PartyOperator}, Mode: v1alpha1.ModePodPhase, PartOf: v1alpha1.ModeCRR,
			Attempt: 1, StartTime: at(300), EndTime: at(1000), DurationSeconds: ptr.To[int64](0),
		},
		{Name: timeline.StepSidecarsEnded, By: []timeline.Party{timeline.PartyNode}, StartTime: at(1000), EndTime: at(3500), DurationSeconds: ptr.To[int64](2)},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}
