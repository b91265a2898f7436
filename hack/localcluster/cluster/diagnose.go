// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// describePods returns what a person needs to see why the pods of a namespace are not
// ready: their statuses, their events and the end of their logs.
func (c *clients) describePods(ctx context.Context, namespace string) string {
	text := &strings.Builder{}
	pods, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Sprintf("(no pods: %v)", err)
	}
	for _, pod := range pods.Items {
		_, _ = fmt.Fprintf(text, "pod %s: %s\n", pod.Name, pod.Status.Phase)
		for _, status := range pod.Status.ContainerStatuses {
			_, _ = fmt.Fprintf(text, "  container %s: ready %t, %d restarts, %s\n", status.Name, status.Ready, status.RestartCount, describeState(status.State))
			_, _ = fmt.Fprint(text, c.logsOf(ctx, pod, status))
		}
	}
	events, err := c.typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return text.String() + fmt.Sprintf("(no events: %v)", err)
	}
	for _, event := range events.Items {
		_, _ = fmt.Fprintf(text, "event on %s %s: %s: %s\n", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
	return text.String()
}

func describeState(state corev1.ContainerState) string {
	switch {
	case state.Waiting != nil:
		return strings.TrimSuffix(fmt.Sprintf("waiting: %s: %s", state.Waiting.Reason, state.Waiting.Message), ": ")
	case state.Terminated != nil:
		return fmt.Sprintf("terminated: %s, exit code %d", state.Terminated.Reason, state.Terminated.ExitCode)
	default:
		return "running"
	}
}

// logsOf returns the end of a container's log, or of that of the run before when the
// container waits for its next.
func (c *clients) logsOf(ctx context.Context, pod corev1.Pod, status corev1.ContainerStatus) string {
	lines := int64(logLines)
	options := &corev1.PodLogOptions{
		Container: status.Name,
		TailLines: &lines,
		Previous:  status.State.Waiting != nil && status.LastTerminationState.Terminated != nil,
	}
	content, err := c.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	if err != nil {
		return fmt.Sprintf("    (no log: %v)\n", err)
	}
	text := &strings.Builder{}
	for line := range strings.Lines(string(content)) {
		_, _ = fmt.Fprintf(text, "    %s\n", strings.TrimRight(line, "\n"))
	}
	return text.String()
}
