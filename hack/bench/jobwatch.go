// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// step is what a watch of the API shows after the end of a Job's main container.
type step string

const (
	stepReported  step = "main reported"
	stepRequested step = "termination requested"
	stepSidecar   step = "sidecar ended"
	stepPod       step = "pod finished"
	stepJob       step = "Job finished"
)

// jobRecord is what the watches have shown of one Job. Times are since the boot of the machine.
type jobRecord struct {
	name  string
	fails bool // its main container

	ended  time.Duration // the end of the main container, by its own words; 0 if unknown
	at     map[step]time.Duration
	result batchv1.JobConditionType // empty until the Job has finished

	pod     types.UID
	phases  []corev1.PodPhase
	running bool // a container
	again   bool // the main container ran more than once
}

// first keeps the first time of a step.
func (r *jobRecord) first(seen step, at time.Duration) {
	if _, known := r.at[seen]; !known {
		r.at[seen] = at
	}
}

func (r *jobRecord) seePod(pod *corev1.Pod, at time.Duration) {
	if r.pod != "" && r.pod != pod.UID {
		r.again = true
		return
	}
	r.pod = pod.UID
	if pod.Labels[v1alpha1.LabelTerminatedBy] != "" || pod.Annotations[v1alpha1.AnnotationImageSwap] != "" {
		r.first(stepRequested, at)
	}
	if phase := pod.Status.Phase; phase != r.phase() {
		r.phases = append(r.phases, phase)
	}
	if terminal(r.phase()) {
		r.first(stepPod, at)
	}
	r.running = false
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		r.running = r.running || status.State.Running != nil
		ended := status.State.Terminated
		switch {
		case status.Name == sidecar && ended == nil:
			delete(r.at, stepSidecar) // a swapped image starts again
		case status.Name == sidecar:
			r.first(stepSidecar, at)
		case status.Name == mainName && ended != nil:
			r.first(stepReported, at)
			r.ended, _ = parseUptime(ended.Message)
		}
		r.again = r.again || status.Name == mainName && status.RestartCount > 0
	}
}

func (r *jobRecord) seeJob(job *batchv1.Job, at time.Duration) {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			r.result = condition.Type
			r.first(stepJob, at)
		}
	}
}

// phase is the last phase of the pod.
func (r *jobRecord) phase() corev1.PodPhase {
	if len(r.phases) == 0 {
		return ""
	}
	return r.phases[len(r.phases)-1]
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// finished reports whether nothing more will happen.
func (r *jobRecord) finished() bool { return r.result != "" && terminal(r.phase()) && !r.running }

// reversals counts changes of a terminal phase.
func (r *jobRecord) reversals() int {
	count := 0
	for i := 1; i < len(r.phases); i++ {
		if terminal(r.phases[i-1]) {
			count++
		}
	}
	return count
}

// wrong reports whether the outcome is not that of the main container, or the main container ran more than once.
func (r *jobRecord) wrong() bool {
	result, phase := batchv1.JobComplete, corev1.PodSucceeded
	if r.fails {
		result, phase = batchv1.JobFailed, corev1.PodFailed
	}
	return r.result != result || r.phase() != phase || r.again
}

func (r *jobRecord) String() string {
	return fmt.Sprintf("Job %s: result %q, phases %q, main container fails %t, ran again %t", r.name, r.result, r.phases, r.fails, r.again)
}

// jobWatch records what happens to Jobs, on watches that no contender shares.
type jobWatch struct {
	boot      time.Time
	cancel    context.CancelFunc
	followers sync.WaitGroup

	mu      sync.Mutex
	records map[string]*jobRecord // by Job
	err     error                 // why a watch ended
}

// watchJobs starts the watches before it returns. The caller must call stop.
func watchJobs(ctx context.Context, c client.WithWatch, namespace string, boot time.Time, records []*jobRecord) (*jobWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &jobWatch{boot: boot, cancel: cancel, records: map[string]*jobRecord{}}
	for _, record := range records {
		w.records[record.name] = record
	}
	crrs := &metav1.PartialObjectMetadataList{}
	crrs.SetGroupVersionKind(requestKind.GroupVersion().WithKind(requestKind.Kind + "List"))
	for _, list := range []client.ObjectList{&corev1.PodList{}, &batchv1.JobList{}, crrs} {
		events, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			w.stop()
			return nil, fmt.Errorf("watch %T: %w", list, err)
		}
		w.followers.Go(func() { w.follow(ctx, events) })
	}
	return w, nil
}

// stop ends the watches. Records do not change any more.
func (w *jobWatch) stop() {
	w.cancel()
	w.followers.Wait()
}

// follow records events until the context is done. A watch that ends before is an error: it may have missed a phase.
func (w *jobWatch) follow(ctx context.Context, events watch.Interface) {
	defer events.Stop()
	reason := errClosed
	for event := range events.ResultChan() {
		at := time.Since(w.boot)
		if event.Type == watch.Error {
			reason = apierrors.FromObject(event.Object)
			break
		}
		if event.Type != watch.Deleted {
			w.mu.Lock()
			w.see(event.Object, at)
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil {
		w.err = reason
	}
}

func (w *jobWatch) see(object any, at time.Duration) {
	switch object := object.(type) {
	case *corev1.Pod:
		if record := w.records[object.Labels[batchv1.JobNameLabel]]; record != nil {
			record.seePod(object, at)
		}
	case *batchv1.Job:
		if record := w.records[object.Name]; record != nil {
			record.seeJob(object, at)
		}
	case *metav1.PartialObjectMetadata:
		// The pods of a Job have its name and a suffix.
		pod := askedFor(object, v1alpha1.ModeCRR)
		if record := w.records[pod[:max(0, strings.LastIndexByte(pod, '-'))]]; record != nil {
			record.first(stepRequested, at)
		}
	}
}

// wait waits until all Jobs have finished, or until the time limit.
func (w *jobWatch) wait(ctx context.Context, limit time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, record := range w.records {
			if !record.finished() {
				return false, w.err
			}
		}
		return true, w.err
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return fmt.Errorf("wait for %d Jobs: %w", len(w.records), err)
	}
	return nil
}

// bootTime is when the machine booted, on the monotonic clock of this process.
func bootTime() (time.Time, error) {
	content, err := os.ReadFile("/proc/uptime")
	now := time.Now()
	if err != nil {
		return now, fmt.Errorf("read the uptime: %w", err)
	}
	uptime, err := parseUptime(string(content))
	return now.Add(-uptime), err
}

// parseUptime reads the first number of /proc/uptime, which has hundredths of a second.
func parseUptime(content string) (time.Duration, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(content), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("read the uptime: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
