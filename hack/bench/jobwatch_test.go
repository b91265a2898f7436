// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func runningContainer(name string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func endedContainer(name, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}
}

// podOf is a pod of the Job "import".
func podOf(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "import-x2b4c", UID: "pod", Labels: map[string]string{batchv1.JobNameLabel: "import"}},
		Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: statuses},
	}
}

// jobOf is the Job "import".
func jobOf(conditions ...batchv1.JobConditionType) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "import"}}
	for _, condition := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	return job
}

func changed(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(pod)
	return pod
}

func TestJobRecord(t *testing.T) {
	const run, done, failed = corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	written := func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase" }
	swapped := func(pod *corev1.Pod) { pod.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: "{}"} }
	another := func(pod *corev1.Pod) { pod.UID = "another" }
	main, mainEnded := runningContainer("main", 0), endedContainer("main", "100.50\n")
	beside, besideEnded := runningContainer(sidecar, 0), endedContainer(sidecar, "")
	native := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = []corev1.ContainerStatus{status} }
	}
	for _, test := range []struct {
		name      string
		fails     bool
		events    []runtime.Object // at seconds 101, 102, ...
		at        map[step]int
		reversals int
		wrong     bool
		pending   bool
	}{
		{
			name: "a written phase precedes the end of the sidecar",
			events: []runtime.Object{
				podOf(run, main, beside), podOf(run, mainEnded, beside), changed(podOf(done, mainEnded, beside), written),
				jobOf(batchv1.JobSuccessCriteriaMet), jobOf(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete), changed(podOf(done, mainEnded, besideEnded), written),
			},
			at: map[step]int{stepReported: 102, stepRequested: 103, stepPod: 103, stepJob: 105, stepSidecar: 106},
		},
		{
			name: "a request precedes the end of the sidecar",
			events: []runtime.Object{
				podOf(run, mainEnded, beside), requestOf("import-x2b4c"), podOf(run, mainEnded, besideEnded), podOf(done, mainEnded, besideEnded), jobOf(batchv1.JobComplete),
			},
			at: map[step]int{stepReported: 101, stepRequested: 102, stepSidecar: 103, stepPod: 104, stepJob: 105},
		},
		{
			name: "a swapped image starts and ends again",
			events: []runtime.Object{
				changed(podOf(run, mainEnded, beside), swapped), podOf(run, mainEnded, besideEnded), podOf(run, mainEnded, runningContainer(sidecar, 1)),
				podOf(done, mainEnded, besideEnded), jobOf(batchv1.JobComplete),
			},
			at: map[step]int{stepReported: 101, stepRequested: 101, stepSidecar: 104, stepPod: 104, stepJob: 105},
		},
		{
			name: "a native sidecar",
			events: []runtime.Object{
				changed(podOf(run, mainEnded), native(beside)), changed(podOf(done, mainEnded), native(besideEnded)), jobOf(batchv1.JobComplete),
			},
			at: map[step]int{stepReported: 101, stepSidecar: 102, stepPod: 102, stepJob: 103},
		},
		{
			name: "no sidecar, and a main container that fails as planned", fails: true,
			events: []runtime.Object{podOf(failed, mainEnded), jobOf(batchv1.JobFailureTarget, batchv1.JobFailed)},
			at:     map[step]int{stepReported: 101, stepPod: 101, stepJob: 102},
		},
		{
			name: "a reverted phase",
			events: []runtime.Object{
				podOf(done, mainEnded, beside), podOf(run, mainEnded, beside), podOf(done, mainEnded, besideEnded), jobOf(batchv1.JobComplete),
			},
			at: map[step]int{stepReported: 101, stepPod: 101, stepSidecar: 103, stepJob: 104}, reversals: 1,
		},
		{
			name:   "a Failed Job with a main container that succeeds",
			events: []runtime.Object{podOf(failed, mainEnded, besideEnded), jobOf(batchv1.JobFailed)},
			at:     map[step]int{stepReported: 101, stepSidecar: 101, stepPod: 101, stepJob: 102}, wrong: true,
		},
		{
			name:   "a Complete Job whose pod ends as Failed",
			events: []runtime.Object{podOf(done, mainEnded, beside), jobOf(batchv1.JobComplete), podOf(failed, mainEnded, besideEnded)},
			at:     map[step]int{stepReported: 101, stepPod: 101, stepJob: 102, stepSidecar: 103}, wrong: true, reversals: 1,
		},
		{
			name: "a Complete Job with a main container that fails", fails: true,
			events: []runtime.Object{podOf(done, mainEnded), jobOf(batchv1.JobComplete)},
			at:     map[step]int{stepReported: 101, stepPod: 101, stepJob: 102}, wrong: true,
		},
		{
			name:   "a second pod",
			events: []runtime.Object{podOf(done, mainEnded), changed(podOf(run, main), another), jobOf(batchv1.JobComplete)},
			at:     map[step]int{stepReported: 101, stepPod: 101, stepJob: 103}, wrong: true,
		},
		{
			name:   "a main container that restarted",
			events: []runtime.Object{podOf(run, runningContainer("main", 1)), podOf(done, mainEnded), jobOf(batchv1.JobComplete)},
			at:     map[step]int{stepReported: 102, stepPod: 102, stepJob: 103}, wrong: true,
		},
		{
			name:   "a sidecar that still runs",
			events: []runtime.Object{changed(podOf(done, mainEnded, beside), written), jobOf(batchv1.JobComplete)},
			at:     map[step]int{stepReported: 101, stepRequested: 101, stepPod: 101, stepJob: 102}, pending: true,
		},
		{
			name: "a Job that does not finish", events: []runtime.Object{podOf(run, mainEnded, beside)},
			at: map[step]int{stepReported: 101}, wrong: true, pending: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			record := &jobRecord{fails: test.fails, at: map[step]time.Duration{}}
			for i, object := range test.events {
				jobRecords{"import": record}.see(object, time.Duration(101+i)*time.Second)
			}
			at := map[step]int{}
			for seen, when := range record.at {
				at[seen] = int(when.Seconds())
			}
			if diff := cmp.Diff(test.at, at); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if record.ended != 100500*time.Millisecond {
				t.Errorf("the main container ended at %s, want 1m40.5s", record.ended)
			}
			if record.reversals != test.reversals || record.wrong() != test.wrong || record.finished() == test.pending {
				t.Errorf("got %d reversals, wrong %t, finished %t: %+v", record.reversals, record.wrong(), record.finished(), record)
			}
		})
	}
}

func TestOtherObjectsAreIgnored(t *testing.T) {
	orphan := requestOf("import-x2b4c")
	orphan.OwnerReferences = nil
	record := &jobRecord{at: map[step]time.Duration{}}
	for _, object := range []runtime.Object{podOf(corev1.PodSucceeded), jobOf(batchv1.JobComplete), requestOf("import-x2b4c"), requestOf("import"), orphan} {
		jobRecords{"another": record}.see(object, time.Second)
	}
	if diff := cmp.Diff(&jobRecord{at: map[step]time.Duration{}}, record, cmp.AllowUnexported(jobRecord{})); diff != "" {
		t.Errorf("record of another Job (-want +got):\n%s", diff)
	}
}

func TestAwait(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old resource version")
	ended := jobEvent{Event: watch.Event{Type: watch.Modified, Object: podOf(corev1.PodSucceeded)}}
	deleted := jobEvent{Event: watch.Event{Type: watch.Deleted, Object: podOf(corev1.PodFailed)}}
	finished := jobEvent{Event: watch.Event{Type: watch.Added, Object: jobOf(batchv1.JobComplete)}}
	for _, test := range []struct {
		name   string
		events []jobEvent
		want   string // of the error
		result batchv1.JobConditionType
	}{
		{name: "the Job finishes, and deletions do not count", events: []jobEvent{ended, deleted, finished}, result: batchv1.JobComplete},
		{name: "the API server ends a watch", events: []jobEvent{ended, {Event: watch.Event{Type: watch.Error, Object: &expired.ErrStatus}}}, want: "too old"},
		{name: "a watch ends without a reason", events: []jobEvent{ended, {}}, want: errClosed.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := make(chan jobEvent, len(test.events))
			for _, event := range test.events {
				events <- event
			}
			record := &jobRecord{at: map[step]time.Duration{}}
			err := jobRecords{"import": record}.await(t.Context(), events)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
			if record.result != test.result || record.reversals != 0 {
				t.Errorf("got %+v, want result %q", record, test.result)
			}
		})
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (jobRecords{"import": {}}).await(over, nil); err != nil {
		t.Errorf("a Job that takes too long: got %v, want no error", err)
	}
}

func TestParseUptime(t *testing.T) {
	for content, want := range map[string]int64{"12.34 20.00\n": 12340, "100000.01": 100000010, "": 0, "Error": 0} {
		if got := parseUptime(content).Round(time.Millisecond).Milliseconds(); got != want {
			t.Errorf("%q: got %d ms, want %d", content, got, want)
		}
	}
	if first := uptime(); first <= 0 || uptime() < first {
		t.Errorf("the machine is up for %s, and then for %s", first, uptime())
	}
}
