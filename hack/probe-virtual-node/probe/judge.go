// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// startErrorExitCode is the exit code of a container whose command is not in the image.
const startErrorExitCode = 128

// isReady reports whether the main container has ended and the sidecar runs. It fails if the
// pod has finished.
func isReady(pod *corev1.Pod) (bool, error) {
	main, sidecar := statusOf(pod, mainName), statusOf(pod, sidecarName)
	if main.State.Terminated != nil && sidecar.State.Running != nil {
		return true, nil
	}
	if hasFinished(pod) {
		return false, fmt.Errorf("the pod ended before the image was changed: %s", describe(pod))
	}
	return false, nil
}

// hasReacted reports whether the pod has reached its final state.
func hasReacted(pod *corev1.Pod) bool {
	return hasFinished(pod) || statusOf(pod, mainName).State.Running != nil
}

func hasFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
}

// judge returns the verdict from the pod before and after the change of its image.
func judge(before, after *corev1.Pod, took time.Duration) Verdict {
	node := before.Spec.NodeName
	no := func(format string, arguments ...any) Verdict {
		return Verdict{Message: fmt.Sprintf("mode Image does NOT work on node %s: ", node) + fmt.Sprintf(format, arguments...) + ". The pod: " + describe(after)}
	}
	main, sidecar := statusOf(after, mainName), statusOf(after, sidecarName)
	switch {
	case after.DeletionTimestamp != nil:
		return no("the pod was deleted when its image changed")
	case main.State.Running != nil || main.RestartCount != statusOf(before, mainName).RestartCount:
		return no("the main container, which had ended, was run again")
	case sidecar.State.Waiting != nil:
		return no("the container was stopped and its new image did not start (%s); check that the node can pull it", sidecar.State.Waiting.Reason)
	case sidecar.State.Running != nil && !restarted(before, after):
		return no("the container was not restarted within %s; the provider ignores changed images", took.Round(time.Second))
	case sidecar.State.Running != nil:
		return no("the container was restarted and still runs; it has the old image, or the new one does not exit")
	case sidecar.State.Terminated != nil && sidecar.State.Terminated.ExitCode == startErrorExitCode:
		return no("the new image does not have the command /bin/sleep; use a quick-exit image that covers the commands of your sidecars")
	case !restarted(before, after):
		return no("the container was stopped and not started again; the new image could not be pulled, or the provider does not restart containers under restartPolicy Never")
	case after.Status.Phase != corev1.PodSucceeded:
		return no("the container was restarted and the pod did not succeed")
	}
	return Verdict{Works: true, Message: fmt.Sprintf("mode Image works on node %s: the container was restarted with its new image and the pod succeeded %.1f s after the change",
		node, took.Seconds())}
}

// restarted reports whether the sidecar is another run than before. Providers may leave out
// some of the fields that tell.
func restarted(before, after *corev1.Pod) bool {
	old, now := statusOf(before, sidecarName), statusOf(after, sidecarName)
	return now.RestartCount > old.RestartCount || now.ContainerID != old.ContainerID || now.ImageID != old.ImageID ||
		now.State.Terminated != nil && now.State.Terminated.ExitCode == 0
}

// statusOf returns the status of a container, which is empty while it has none.
func statusOf(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{Name: name}
}

// describe shows the pod's phase and its containers in one line.
func describe(pod *corev1.Pod) string {
	parts := []string{strings.TrimSpace(fmt.Sprintf("phase %s %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message))}
	for _, name := range []string{mainName, sidecarName} {
		status := statusOf(pod, name)
		state := "has no state"
		switch {
		case status.State.Running != nil:
			state = "runs"
		case status.State.Waiting != nil:
			state = strings.TrimSpace(fmt.Sprintf("waits: %s %s", status.State.Waiting.Reason, status.State.Waiting.Message))
		case status.State.Terminated != nil:
			state = fmt.Sprintf("exited %d", status.State.Terminated.ExitCode)
		}
		parts = append(parts, fmt.Sprintf("%s %s (%d restarts)", name, state, status.RestartCount))
	}
	return strings.Join(parts, ", ")
}
