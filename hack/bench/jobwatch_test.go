// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func ranContainer(name string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func endedContainer(name, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}
}

// seenPod is a pod of the Job "import" with container statuses.
func seenPod(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "import-x2b4c", UID: "pod", Labels: map[string]string{batchv1.JobNameLabel: "import"}},
		Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: statuses},
	}
}

func seenJob(conditions ...batchv1.JobConditionType) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "import"}}
	for _, condition := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	return job
}

func with(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(pod)
	return pod
}

func TestJobRecord(t *testing.T) {
	const run, done, failed = corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	written := func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase" }
	swapped := func(pod *corev1.Pod) { pod.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: "{}"} }
	mainRan, mainEnded := ranContainer(mainName, 0), endedContainer(mainName, "100.50\n")
	sidecarRan, sidecarEnded := ranContainer(sidecar, 0), endedContainer(sidecar, "")
	crr := requestOf("import-x2b4c")
	for _, test := range []struct {
		name          string
		fails         bool
		events        []any // one second apart, from second 101
		at            map[step]time.Duration
		reversals     int
		wrong, unsure bool // unsure: the Job has not finished
	}{
		{
			name: "a written phase precedes the end of the sidecar",
			events: []any{
				seenPod(run, mainRan, sidecarRan), seenPod(run, mainEnded, sidecarRan), with(seenPod(done, mainEnded, sidecarRan), written),
				seenJob(batchv1.JobSuccessCriteriaMet), seenJob(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete), with(seenPod(done, mainEnded, sidecarEnded), written),
			},
			at: map[step]time.Duration{stepReported: 102, stepRequested: 103, stepPod: 103, stepJob: 105, stepSidecar: 106},
		},
		{
			name: "a request precedes the end of the sidecar",
			events: []any{
				seenPod(run, mainEnded, sidecarRan), crr, seenPod(run, mainEnded, sidecarEnded), seenPod(done, mainEnded, sidecarEnded), seenJob(batchv1.JobComplete),
			},
			at: map[step]time.Duration{stepReported: 101, stepRequested: 102, stepSidecar: 103, stepPod: 104, stepJob: 105},
		},
		{
			name: "a swapped image starts and ends again",
			events: []any{
				with(seenPod(run, mainEnded, sidecarRan), swapped), with(seenPod(run, mainEnded, sidecarEnded), swapped),
				with(seenPod(run, mainEnded, ranContainer(sidecar, 1)), swapped), with(seenPod(done, mainEnded, sidecarEnded), swapped), seenJob(batchv1.JobComplete),
			},
			at: map[step]time.Duration{stepReported: 101, stepRequested: 101, stepSidecar: 104, stepPod: 104, stepJob: 105},
		},
		{
			name: "a native sidecar",
			events: []any{
				with(seenPod(run, mainEnded), func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = []corev1.ContainerStatus{sidecarRan} }),
				with(seenPod(done, mainEnded), func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = []corev1.ContainerStatus{sidecarEnded} }),
				seenJob(batchv1.JobComplete),
			},
			at: map[step]time.Duration{stepReported: 101, stepSidecar: 102, stepPod: 102, stepJob: 103},
		},
		{
			name:   "no sidecar, and the main container fails as it should",
			fails:  true,
			events: []any{seenPod(failed, mainEnded), seenJob(batchv1.JobFailureTarget, batchv1.JobFailed)},
			at:     map[step]time.Duration{stepReported: 101, stepPod: 101, stepJob: 102},
		},
		{
			name: "the phase is reverted and written again",
			events: []any{
				seenPod(done, mainEnded, sidecarRan), seenPod(run, mainEnded, sidecarRan), seenPod(done, mainEnded, sidecarEnded), seenJob(batchv1.JobComplete),
			},
			at:        map[step]time.Duration{stepReported: 101, stepPod: 101, stepSidecar: 103, stepJob: 104},
			reversals: 1,
		},
		{
			name:   "the Job fails although its main container succeeds",
			events: []any{seenPod(failed, mainEnded, sidecarEnded), seenJob(batchv1.JobFailed)},
			at:     map[step]time.Duration{stepReported: 101, stepSidecar: 101, stepPod: 101, stepJob: 102},
			wrong:  true,
		},
		{
			name:   "the Job is Complete although its pod ends as Failed",
			events: []any{seenPod(done, mainEnded, sidecarRan), seenJob(batchv1.JobComplete), seenPod(failed, mainEnded, sidecarEnded)},
			at:     map[step]time.Duration{stepReported: 101, stepPod: 101, stepJob: 102, stepSidecar: 103},
			wrong:  true, reversals: 1,
		},
		{
			name:   "the Job is Complete although its main container fails",
			fails:  true,
			events: []any{seenPod(done, mainEnded), seenJob(batchv1.JobComplete)},
			at:     map[step]time.Duration{stepReported: 101, stepPod: 101, stepJob: 102},
			wrong:  true,
		},
		{
			name: "the Job has a second pod",
			events: []any{
				seenPod(done, mainEnded), with(seenPod(run, mainRan), func(pod *corev1.Pod) { pod.UID = "another" }), seenJob(batchv1.JobComplete),
			},
			at:    map[step]time.Duration{stepReported: 101, stepPod: 101, stepJob: 103},
			wrong: true,
		},
		{
			name:   "the main container restarts",
			events: []any{seenPod(run, ranContainer(mainName, 1)), seenPod(done, mainEnded), seenJob(batchv1.JobComplete)},
			at:     map[step]time.Duration{stepReported: 102, stepPod: 102, stepJob: 103},
			wrong:  true,
		},
		{
			name:   "a sidecar runs after the Job has finished",
			events: []any{with(seenPod(done, mainEnded, sidecarRan), written), seenJob(batchv1.JobComplete)},
			at:     map[step]time.Duration{stepReported: 101, stepRequested: 101, stepPod: 101, stepJob: 102},
			unsure: true,
		},
		{
			name: "the Job does not finish", events: []any{seenPod(run, mainEnded, sidecarRan)},
			at: map[step]time.Duration{stepReported: 101}, wrong: true, unsure: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			record := &jobRecord{name: "import", fails: test.fails, at: map[step]time.Duration{}}
			w := &jobWatch{records: map[string]*jobRecord{"import": record}}
			for i, event := range test.events {
				w.see(event, time.Duration(101+i)*time.Second)
			}
			for seen := range test.at {
				test.at[seen] *= time.Second
			}
			if diff := cmp.Diff(test.at, record.at); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if record.ended != 100500*time.Millisecond {
				t.Errorf("the main container ended at %s, want 1m40.5s", record.ended)
			}
			if got := record.reversals(); got != test.reversals {
				t.Errorf("%d reversals, want %d", got, test.reversals)
			}
			if record.wrong() != test.wrong || record.finished() == test.unsure {
				t.Errorf("wrong %t, finished %t, want %t, %t: %s", record.wrong(), record.finished(), test.wrong, !test.unsure, record)
			}
		})
	}
}

func TestEventsOfOtherJobsAreIgnored(t *testing.T) {
	w := &jobWatch{records: map[string]*jobRecord{}}
	orphan := requestOf("import-x2b4c")
	orphan.OwnerReferences = nil
	for _, event := range []any{seenPod(corev1.PodRunning), seenJob(batchv1.JobComplete), requestOf("import-x2b4c"), requestOf("import"), orphan} {
		w.see(event, time.Second)
	}
	if len(w.records) != 0 {
		t.Errorf("got %v, want no record", w.records)
	}
}

func TestJobWatchWait(t *testing.T) {
	finished := &jobRecord{name: "a", result: batchv1.JobComplete, phases: []corev1.PodPhase{corev1.PodSucceeded}}
	gone := apierrors.NewResourceExpired("too old resource version")
	for _, test := range []struct {
		name   string
		record *jobRecord
		events func(*watch.FakeWatcher)
		want   string // of the error
	}{
		{"all have finished", finished, nil, ""},
		{"one has not finished in time, which its record says", &jobRecord{name: "a"}, nil, ""},
		{"the API server ends the watch", &jobRecord{name: "a"}, func(w *watch.FakeWatcher) { w.Error(&gone.ErrStatus) }, "too old"},
		{"the watch ends without a reason", finished, func(w *watch.FakeWatcher) { w.Stop() }, errClosed.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &jobWatch{records: map[string]*jobRecord{"a": test.record}}
			if test.events != nil {
				events := watch.NewFake()
				w.followers.Go(func() { w.follow(t.Context(), events) })
				test.events(events)
				w.followers.Wait()
			}
			err := w.wait(t.Context(), time.Millisecond)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestDeletionsAreNotRecorded(t *testing.T) {
	record := &jobRecord{name: "import", at: map[step]time.Duration{}}
	w := &jobWatch{boot: time.Now(), records: map[string]*jobRecord{"import": record}}
	events := watch.NewFakeWithChanSize(2, false)
	events.Modify(seenPod(corev1.PodSucceeded))
	events.Delete(seenPod(corev1.PodFailed))
	events.Stop()
	w.follow(t.Context(), events)
	if diff := cmp.Diff([]corev1.PodPhase{corev1.PodSucceeded}, record.phases); diff != "" || record.pod != types.UID("pod") {
		t.Errorf("phases of %s (-want +got):\n%s", record.pod, diff)
	}
}

func TestParseUptime(t *testing.T) {
	for content, want := range map[string]time.Duration{
		"12.34 20.00\n": 12340 * time.Millisecond, "100000.01": 100000010 * time.Millisecond, "": 0, "Error": 0,
	} {
		got, err := parseUptime(content)
		if got.Round(time.Microsecond) != want || (err != nil) != (want == 0) {
			t.Errorf("%q: got %s, %v; want %s", content, got, err, want)
		}
	}
}

func TestBootTimePrecedesNow(t *testing.T) {
	first, err := bootTime()
	if err != nil {
		t.Fatal(err)
	}
	second, err := bootTime()
	if err != nil {
		t.Fatal(err)
	}
	// Both are cut to hundredths of a second.
	if apart := second.Sub(first).Abs(); !first.Before(time.Now()) || apart > 20*time.Millisecond {
		t.Errorf("the machine booted at %s and at %s", first, second)
	}
}
