// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// lookEvery is how often the cluster is looked at.
const lookEvery = 100 * time.Millisecond

// timeline prints what happens to the two Jobs, with the seconds since their creation.
type timeline struct {
	cluster client.Client
	start   time.Time
	// seen holds when each state was seen first, and what there is to say of it.
	seen map[state]sighting
}

// state is a state of one Job that the timeline reports.
type state struct {
	job  string
	kind kind
}

type kind string

const (
	running      kind = "containers running"
	mainEnded    kind = "main container ended"
	told         kind = "sidecar told to stop"
	sidecarEnded kind = "sidecar ended"
	complete     kind = "Job Complete"
	hanging      kind = "still hanging"
	inStatus     kind = "counted in the policy's status"
)

type sighting struct {
	at     time.Time
	detail string
}

func newTimeline(cluster client.Client) *timeline {
	return &timeline{cluster: cluster, start: time.Now(), seen: map[state]sighting{}}
}

// run prints the states in their order, each as soon as it and those before it have been seen.
func (t *timeline) run(ctx context.Context) error {
	t.print(0, "both", "Jobs created")
	pending := []state{
		{selectedJob, running}, {selectedJob, mainEnded}, {selectedJob, told}, {selectedJob, sidecarEnded}, {selectedJob, complete},
		{otherJob, hanging}, {selectedJob, inStatus},
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if err := t.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		for len(pending) > 0 {
			sighting, ok := t.seen[pending[0]]
			if !ok {
				break
			}
			if pending[0].kind != inStatus {
				t.print(sighting.at.Sub(t.start), pending[0].job, sighting.detail)
			}
			pending = pending[1:]
		}
		if len(pending) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: Job %s was to be seen with: %s (look at the operator with: kubectl logs -n sidecar-termination-system deployment/sidecar-termination-controller-manager)",
				context.Cause(ctx), pending[0].job, pending[0].kind)
		case <-ticker.C:
		}
	}
}

func (t *timeline) print(elapsed time.Duration, job, what string) {
	fmt.Printf("%6.1f s  %-14s  %s\n", elapsed.Seconds(), job, what)
}

// note records a state when it is seen for the first time.
func (t *timeline) note(job string, kind kind, at time.Time, format string, arguments ...any) {
	if _, ok := t.seen[state{job, kind}]; !ok {
		t.seen[state{job, kind}] = sighting{at: at, detail: fmt.Sprintf(format, arguments...)}
	}
}

// look reads the cluster once and notes what is new.
func (t *timeline) look(ctx context.Context) error {
	now := time.Now()
	jobs, pods, events := &batchv1.JobList{}, &corev1.PodList{}, &corev1.EventList{}
	current := &v1alpha1.SidecarTerminationPolicy{}
	err := errors.Join(
		t.cluster.List(ctx, jobs, client.InNamespace(namespace)),
		t.cluster.List(ctx, pods, client.InNamespace(namespace)),
		t.cluster.List(ctx, events, client.InNamespace(namespace)),
		t.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: policyName}, current),
	)
	if err != nil {
		return fmt.Errorf("look at the namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		t.notePod(&pods.Items[i], now)
	}
	for i := range events.Items {
		t.noteEvent(&events.Items[i], now)
	}
	for i := range jobs.Items {
		if err := t.noteJob(&jobs.Items[i], now); err != nil {
			return err
		}
	}
	if current.Status.TerminatedPods > 0 {
		t.note(selectedJob, inStatus, now, "")
	}
	return nil
}

func (t *timeline) notePod(pod *corev1.Pod, now time.Time) {
	job := pod.Labels[jobLabel]
	main, sidecar := statusOf(pod, mainName), statusOf(pod, sidecarName)
	if main.State.Waiting == nil && main.ContainerID != "" && sidecar.ContainerID != "" {
		t.note(job, running, now, "both containers run")
	}
	if ended := main.State.Terminated; ended != nil {
		t.note(job, mainEnded, now, "main container ended with exit code %d", ended.ExitCode)
	}
	if ended := sidecar.State.Terminated; ended != nil {
		t.note(job, sidecarEnded, now, "sidecar ended with exit code %d", ended.ExitCode)
	}
	if seen, ok := t.seen[state{job, mainEnded}]; ok && job == otherJob && sidecar.State.Running != nil && now.Sub(seen.at) >= hangingFor {
		t.note(job, hanging, now, "still hanging: its main container ended %.1f s ago, its sidecar runs on", now.Sub(seen.at).Seconds())
	}
}

// noteEvent notes that the operator has told the sidecar to stop.
func (t *timeline) noteEvent(event *corev1.Event, now time.Time) {
	if event.Reason != string(v1alpha1.ReasonTerminating) && event.Reason != string(v1alpha1.ReasonFallback) {
		return
	}
	at := now
	if !event.EventTime.IsZero() {
		at = event.EventTime.Time
	}
	t.note(selectedJob, told, at, "sidecar told to stop: %s", event.Message)
}

func (t *timeline) noteJob(job *batchv1.Job, now time.Time) error {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobFailed:
			return fmt.Errorf("the Job %s is Failed: %s", job.Name, condition.Message)
		case condition.Type == batchv1.JobComplete && job.Name == otherJob:
			return fmt.Errorf("the Job %s was to hang and is Complete", job.Name)
		case condition.Type == batchv1.JobComplete:
			t.note(job.Name, complete, now, "Job Complete after %.1f s", now.Sub(t.start).Seconds())
		}
	}
	return nil
}

func statusOf(pod *corev1.Pod, container string) corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return pod.Status.ContainerStatuses[i]
		}
	}
	return corev1.ContainerStatus{}
}
