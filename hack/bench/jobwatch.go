// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// step is what the API shows after the end of a Job's main container.
type step string

const (
	stepReported  step = "main container reported"
	stepRequested step = "termination requested"
	stepSidecar   step = "sidecar reported"
	stepPod       step = "pod finished"
	stepJob       step = "Job finished"
)

var steps = []step{stepReported, stepRequested, stepSidecar, stepPod, stepJob}

// jobRecord is what the watches have shown of one Job. Times are since the boot of the machine.
type jobRecord struct {
	fails bool // the main container exits non-zero

	ended  time.Duration // the main container, according to itself; 0 if unknown
	at     map[step]time.Duration
	result batchv1.JobConditionType // empty until the Job has finished

	pod       types.UID
	phase     corev1.PodPhase
	reversals int  // changes of a terminal phase
	running   bool // a container
	again     bool // the main container ran more than once
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
	if terminal(r.phase) && r.phase != pod.Status.Phase {
		r.reversals++
	}
	if r.phase = pod.Status.Phase; terminal(r.phase) {
		r.first(stepPod, at)
	}
	r.running = false
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		r.seeContainer(status, at)
	}
}

func (r *jobRecord) seeContainer(status corev1.ContainerStatus, at time.Duration) {
	ended := status.State.Terminated
	r.running = r.running || status.State.Running != nil
	r.again = r.again || status.Name != sidecar && status.RestartCount > 0
	switch {
	case status.Name != sidecar && ended != nil:
		r.first(stepReported, at)
		r.ended = parseUptime(ended.Message)
	case ended != nil:
		r.first(stepSidecar, at)
	case status.Name == sidecar:
		delete(r.at, stepSidecar) // it has started again, with another image
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

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// finished reports whether nothing more will happen.
func (r *jobRecord) finished() bool { return r.result != "" && terminal(r.phase) && !r.running }

// wrong reports whether the outcome differs from the main container's, or the main container ran more than once.
func (r *jobRecord) wrong() bool {
	result, phase := batchv1.JobComplete, corev1.PodSucceeded
	if r.fails {
		result, phase = batchv1.JobFailed, corev1.PodFailed
	}
	return r.result != result || r.phase != phase || r.again
}

// jobRecords are the records of Jobs by name.
type jobRecords map[string]*jobRecord

func (r jobRecords) see(object any, at time.Duration) {
	switch object := object.(type) {
	case *corev1.Pod:
		if record := r[object.Labels[batchv1.JobNameLabel]]; record != nil {
			record.seePod(object, at)
		}
	case *batchv1.Job:
		if record := r[object.Name]; record != nil {
			record.seeJob(object, at)
		}
	case *metav1.PartialObjectMetadata:
		// The pods of a Job have its name and a suffix.
		pod := askedFor(object, v1alpha1.ModeCRR)
		if record := r[pod[:max(0, strings.LastIndexByte(pod, '-'))]]; record != nil {
			record.first(stepRequested, at)
		}
	}
}

// await records events until all Jobs have finished, or until the context is done. A watch that ends before is an error,
// because it may have missed a phase.
func (r jobRecords) await(ctx context.Context, events <-chan jobEvent) error {
	for slices.ContainsFunc(slices.Collect(maps.Values(r)), func(record *jobRecord) bool { return !record.finished() }) {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			switch event.Type {
			case watch.Added, watch.Modified:
				r.see(event.Object, event.at)
			case watch.Error:
				return fmt.Errorf("watch Jobs: %w", apierrors.FromObject(event.Object))
			case "":
				return errClosed
			}
		}
	}
	return nil
}

// jobEvent is an event, or the end of a watch, with the time since the boot of the machine.
type jobEvent struct {
	watch.Event
	at time.Duration
}

// watchJobs starts watches that no contender shares before it returns. They end with the context.
func watchJobs(ctx context.Context, c client.WithWatch, namespace string) (<-chan jobEvent, error) {
	all := make(chan jobEvent)
	crrs := &metav1.PartialObjectMetadataList{}
	crrs.SetGroupVersionKind(requestKind.GroupVersion().WithKind(requestKind.Kind + "List"))
	for _, list := range []client.ObjectList{&corev1.PodList{}, &batchv1.JobList{}, crrs} {
		events, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", list, err)
		}
		go func() {
			defer events.Stop()
			for open := true; open; {
				var event watch.Event
				event, open = <-events.ResultChan()
				select {
				case all <- jobEvent{event, uptime()}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return all, nil
}

// uptime is the time since the machine booted. Containers have the same clock.
func uptime() time.Duration {
	content, _ := os.ReadFile("/proc/uptime")
	return parseUptime(string(content))
}

// parseUptime reads the first number of /proc/uptime, which has hundredths of a second. It returns 0 if there is none.
func parseUptime(content string) time.Duration {
	seconds := 0.0
	_, _ = fmt.Sscan(content, &seconds)
	return time.Duration(seconds * float64(time.Second))
}
