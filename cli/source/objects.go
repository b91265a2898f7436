// SPDX-License-Identifier: Apache-2.0

package source

import (
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
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/settings"
)

// PodWithEvents reads what concerns a pod, with its events.
func (s *Source) PodWithEvents(ctx context.Context, pod *corev1.Pod) (explain.Pod, error) {
	result, err := s.Pod(ctx, pod)
	if err != nil {
		return result, err
	}
	result.Events, err = s.events(ctx, pod)
	return result, err
}

// eventSources are the reporting controllers of events to show.
var eventSources = []string{settings.Name, settings.PluginProgram}

// events returns the events of the operator and of the plugin on the pod, oldest first. Missing permission is not an error.
func (s *Source) events(ctx context.Context, pod *corev1.Pod) ([]explain.Event, error) {
	var list eventsv1.EventList
	err := s.Client.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("regarding.uid", string(pod.UID))})
	switch {
	case err != nil && isUnavailable(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list events of pod: %w", err)
	}
	var events []explain.Event
	for _, event := range list.Items {
		if slices.Contains(eventSources, event.ReportingController) {
			events = append(events, explain.Event{
				Time: metav1.NewTime(event.EventTime.Time), Type: event.Type, Reason: v1alpha1.Reason(event.Reason), Message: event.Note,
			})
		}
	}
	slices.SortStableFunc(events, func(a, b explain.Event) int { return a.Time.Compare(b.Time.Time) })
	return events, nil
}

// UnfinishedPods lists the unfinished Job-type pods. An empty namespace means all.
func (s *Source) UnfinishedPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: podcache.UnfinishedPods()}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}

// PodsOf returns the pods that a Job controls: unfinished pods first, then newer pods first.
func (s *Source) PodsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.Client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("list pods of Job: %w", err)
	}
	// Anybody can copy the label.
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) })
	slices.SortStableFunc(list.Items, func(a, b corev1.Pod) int {
		switch finished := plan.HasTerminalPhase(&a); {
		case finished == plan.HasTerminalPhase(&b):
			return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
		case finished:
			return 1
		}
		return -1
	})
	return list.Items, nil
}

// FinalCondition returns the condition Complete or Failed of a finished Job, or nil.
func FinalCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
