// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

// eventSource is the name under which the operator reports events.
const eventSource = "sidecar-termination-operator"

// PodNamed gathers what bears on a pod, its Job and events included.
func (l *Live) PodNamed(ctx context.Context, s *Source, key client.ObjectKey) (explain.Pod, error) {
	pod := &corev1.Pod{}
	if err := l.Client.Get(ctx, key, pod); err != nil {
		return explain.Pod{}, fmt.Errorf("get pod: %w", err)
	}
	return l.PodWithEvents(ctx, s, pod, nil)
}

// PodWithEvents gathers what bears on a pod that was read already. Without a Job its own is looked up.
func (l *Live) PodWithEvents(ctx context.Context, s *Source, pod *corev1.Pod, job *batchv1.Job) (explain.Pod, error) {
	if job == nil {
		var err error
		if job, err = l.jobOf(ctx, pod); err != nil {
			return explain.Pod{}, err
		}
	}
	result, err := s.Pod(ctx, pod, job)
	if err != nil {
		return result, err
	}
	result.Events, err = l.events(ctx, pod)
	return result, err
}

// jobOf returns the Job that made the pod, or nil. Not being allowed to read it is no error.
func (l *Live) jobOf(ctx context.Context, pod *corev1.Pod) (*batchv1.Job, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return nil, nil
	}
	job := &batchv1.Job{}
	switch err := l.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, job); {
	case err != nil && isAbsence(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Job of pod: %w", err)
	}
	return job, nil
}

// events returns what the operator has said of the pod, oldest first. Not being allowed to read it is no error.
func (l *Live) events(ctx context.Context, pod *corev1.Pod) ([]explain.Event, error) {
	var list eventsv1.EventList
	err := l.Client.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("regarding.uid", string(pod.UID))})
	if err != nil && !isAbsence(err) {
		// Older API servers cannot select by that field.
		err = l.Client.List(ctx, &list, client.InNamespace(pod.Namespace))
	}
	switch {
	case err != nil && isAbsence(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list events of pod: %w", err)
	}
	var events []explain.Event
	for _, event := range list.Items {
		if event.Regarding.UID == pod.UID && event.ReportingController == eventSource {
			events = append(events, explain.Event{
				Time: metav1.NewTime(event.EventTime.Time), Type: event.Type, Reason: v1alpha1.Reason(event.Reason), Message: event.Note,
			})
		}
	}
	slices.SortStableFunc(events, func(a, b explain.Event) int { return a.Time.Compare(b.Time.Time) })
	return events, nil
}

// Unfinished lists the pods on which the operator may act. An empty namespace means all.
func (l *Live) Unfinished(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.restartPolicy", string(corev1.RestartPolicyAlways)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	var pods corev1.PodList
	if err := l.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}

// PodsOf returns the pods of a Job: unfinished ones first, then newer ones first.
func (l *Live) PodsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := l.Client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("list pods of Job: %w", err)
	}
	finished := func(p *corev1.Pod) int {
		if plan.HasTerminalPhase(p) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(finished(&a), finished(&b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	return list.Items, nil
}
