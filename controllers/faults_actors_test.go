// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// node simulates the kubelet and OpenKruise's daemon by writes of pod statuses. Each step is one write. The kubelet writes its own view of
// the phase, and acts on the one that the API server has. The model of internal/plan, which runs in virtual time with delays, shares no
// code with it: here the API server keeps all state.
type node struct {
	server client.Client
	now    func() time.Time
	// mains are the exit codes of a main container's runs. The last one repeats.
	mains []int32
	// exitCode is the exit code of a stopped sidecar.
	exitCode int32
	// stops counts the stops of each container.
	stops map[string]int
	// keepsPhase makes the kubelet keep a terminal phase that it finds in the API, as a kubelet does whose view is current.
	keepsPhase bool
}

// step makes the node's next write. It returns the written resource, or nothing.
func (n *node) step(ctx context.Context, v version) (resource string, err error) {
	for i := range v.pods {
		pod := v.pods[i].DeepCopy()
		if stopped := n.stopped(pod, v.requests); stopped != nil {
			if err := n.server.Status().Update(ctx, stopped); err != nil {
				return "", fmt.Errorf("write status of request as Kruise's daemon: %w", err)
			}
			return "containerrecreaterequests", nil
		}
		running := n.kubelet(pod) || n.daemon(pod, v.requests) || n.restart(pod)
		if running && (!n.keepsPhase || !plan.HasTerminalPhase(pod)) {
			pod.Status.Phase = corev1.PodRunning
		}
		if running || n.phase(pod) {
			if err := n.server.Status().Patch(ctx, pod, kubeletPatch(pod)); err != nil {
				return "", fmt.Errorf("write status of pod as the kubelet: %w", err)
			}
			return "pods", nil
		}
		if finished := n.finished(pod, v.requests); finished != nil {
			if err := n.server.Status().Update(ctx, finished); err != nil {
				return "", fmt.Errorf("write status of request as Kruise: %w", err)
			}
			return "containerrecreaterequests", nil
		}
	}
	return "", nil
}

// kubelet ends main, then does what the spec or the phase of the pod requires.
func (n *node) kubelet(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		image := imageOf(pod, status.Name)
		swapped := status.Image != image && image == quickExit
		if status.State.Waiting != nil && swapped && !plan.HasTerminalPhase(pod) {
			// Its first start succeeds now.
			status.Image, status.ContainerID = image, "containerd://"+status.Name
			n.end(status, 0)
			return true
		}
		if status.State.Running == nil {
			continue
		}
		switch {
		case status.Name == "main":
			n.end(status, n.mains[min(int(status.RestartCount), len(n.mains)-1)])
		case swapped:
			n.stops[status.Name]++
			status.RestartCount++
			status.Image, status.ContainerID = image, fmt.Sprintf("containerd://%s-%d", status.Name, status.RestartCount)
			n.end(status, 0)
		case plan.HasTerminalPhase(pod):
			n.stops[status.Name]++
			n.end(status, n.exitCode)
		default:
			continue
		}
		return true
	}
	return false
}

// stopped reports that an active CRR has stopped its containers, before the kubelet reports it.
func (n *node) stopped(pod *corev1.Pod, requests []kruise.ContainerRecreateRequest) *kruise.ContainerRecreateRequest {
	for i := range requests {
		request := requests[i].DeepCopy()
		if request.Status.CompletionTime != nil || request.Labels[kruise.ContainerRecreateRequestPodUIDKey] != string(pod.UID) ||
			len(request.Status.ContainerRecreateStates) > 0 {
			continue
		}
		for _, container := range request.Spec.Containers {
			request.Status.ContainerRecreateStates = append(request.Status.ContainerRecreateStates, kruise.ContainerRecreateRequestContainerRecreateState{
				Name: container.Name, Phase: kruise.ContainerRecreateRequestRecreating, IsKilled: true,
			})
		}
		return request
	}
	return nil
}

// daemon shows in the pod's status that a container of an active CRR has stopped.
func (n *node) daemon(pod *corev1.Pod, requests []kruise.ContainerRecreateRequest) bool {
	for i := range requests {
		if requests[i].Status.CompletionTime != nil || requests[i].Labels[kruise.ContainerRecreateRequestPodUIDKey] != string(pod.UID) {
			continue
		}
		for _, container := range requests[i].Spec.Containers {
			status := statusOf(pod, container.Name)
			if status.State.Running != nil && status.ContainerID == container.StatusContext.ContainerID {
				n.stops[status.Name]++
				n.end(status, n.exitCode)
				return true
			}
		}
	}
	return false
}

// finished completes a CRR after one of its containers has restarted, as OpenKruise does.
func (n *node) finished(pod *corev1.Pod, requests []kruise.ContainerRecreateRequest) *kruise.ContainerRecreateRequest {
	for i := range requests {
		request := requests[i].DeepCopy()
		if request.Status.CompletionTime == nil && slices.ContainsFunc(request.Spec.Containers, func(c kruise.ContainerRecreateRequestContainer) bool {
			status := statusOf(pod, c.Name)
			return status.State.Running != nil && status.RestartCount > c.StatusContext.RestartCount
		}) {
			request.Status.Phase, request.Status.CompletionTime = kruise.ContainerRecreateRequestCompleted, ptr.To(metav1.NewTime(n.now()))
			return request
		}
	}
	return nil
}

// restart restarts a failed container under restart policy OnFailure.
func (n *node) restart(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || plan.HasTerminalPhase(pod) {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if end := status.State.Terminated; end == nil || end.ExitCode == 0 {
			continue
		}
		status.RestartCount++
		status.ContainerID = fmt.Sprintf("containerd://%s-%d", status.Name, status.RestartCount)
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(n.now())}}
		return true
	}
	return false
}

// phase sets the kubelet's phase once every container has ended.
func (n *node) phase(pod *corev1.Pod) bool {
	if plan.HasTerminalPhase(pod) {
		return false
	}
	phase := corev1.PodSucceeded
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated == nil {
			return false
		}
		if status.State.Terminated.ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}
	pod.Status.Phase = phase
	return true
}

func (n *node) end(status *corev1.ContainerStatus, code int32) {
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(n.now())}}
}

func imageOf(pod *corev1.Pod, name string) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == name {
			return container.Image
		}
	}
	return ""
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return &corev1.ContainerStatus{}
}

// isMain reports whether the container is a main container, which nobody may stop.
func isMain(name string) bool { return strings.HasPrefix(name, "main") }
