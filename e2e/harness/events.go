//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// WaitForEvent waits for an event on the pod with the reason, and returns it.
func (t *Test) WaitForEvent(pod *corev1.Pod, reason v1alpha1.Reason) corev1.Event {
	t.Helper()
	var found corev1.Event
	t.Eventually(fmt.Sprintf("an event %s on pod %s", reason, pod.Name), StatusTimeout, func(ctx context.Context) error {
		events, err := t.eventsOn(ctx, pod)
		if err != nil {
			return err
		}
		index := slices.IndexFunc(events, func(event corev1.Event) bool { return event.Reason == string(reason) })
		if index < 0 {
			return fmt.Errorf("the pod has the events %v", ReasonsOf(events))
		}
		found = events[index]
		return nil
	})
	return found
}

// EventsOn returns the events on the pod.
func (t *Test) EventsOn(pod *corev1.Pod) []corev1.Event {
	t.Helper()
	events, err := t.eventsOn(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func (t *Test) eventsOn(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	events := &corev1.EventList{}
	if err := t.Client.List(ctx, events, client.InNamespace(pod.Namespace), client.MatchingFields{"involvedObject.name": pod.Name}); err != nil {
		return nil, fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	return slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID != pod.UID }), nil
}

// ReasonsOf returns the reasons of the events.
func ReasonsOf(events []corev1.Event) []string {
	reasons := make([]string, 0, len(events))
	for i := range events {
		reasons = append(reasons, events[i].Reason)
	}
	return reasons
}
