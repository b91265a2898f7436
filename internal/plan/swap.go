// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// findLostSwap returns an attempt of mode Image that took effect, but lost its record, or nil. It covers sidecars whose first
// mode is Image and that have their quick-exit image without a record.
//
// virtual-kubelet writes a pod's status together with the labels and annotations of its provider's copy (updatePodStatus
// in node/pod.go). A provider that has not seen the swap yet thus removes the record. It does not remove the images, which are in the
// spec. The attempt's start is the last known event. If it really began later, its deadline is early, which is
// harmless: a later end of the container still counts. If the node's clock is ahead, the start is when the operator last saw a
// container change.
func (s *situation) findLostSwap() *Attempt {
	if s.mainsDone.IsZero() {
		return nil
	}
	var restarts map[string]int32
	started := s.mainsDone
	for _, sidecar := range s.View.Sidecars {
		container, status := containerOf(s.Pod, sidecar.Container), statusOf(s.Pod, sidecar.Container)
		imageFirst := s.Node == NodeVirtual || sidecar.Mode == v1alpha1.ModeImage
		if !imageFirst || sidecar.Image == "" || container == nil || status == nil || container.Image != sidecar.Image || s.recordsSwap(sidecar.Container) {
			continue
		}
		if restarts == nil {
			restarts = map[string]int32{}
		}
		restarts[sidecar.Container] = status.RestartCount
		started = later(started, s.drained(sidecar))
		if state := status.State; state.Running != nil {
			started = later(started, state.Running.StartedAt.Time)
		} else if state.Terminated != nil {
			started = later(started, state.Terminated.FinishedAt.Time)
		}
	}
	if restarts == nil {
		return nil
	}
	if started.After(s.now) {
		started = s.ContainersUnchangedSince
	}
	return &Attempt{Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, RestartCounts: restarts, Started: started}
}

// recordsSwap reports whether there is an attempt of mode Image on the container.
func (s *situation) recordsSwap(name string) bool {
	for _, attempt := range s.Attempts {
		if attempt.Mode == v1alpha1.ModeImage && attempt.covers(name) {
			return true
		}
	}
	return false
}

// swappedRunEnded reports whether the container that ended ran the new image. That one started after the main containers
// were done. Where a provider reports no start time, the restart count decides.
func (s *situation) swappedRunEnded(status *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	if end.StartedAt.IsZero() {
		return status.RestartCount > 0
	}
	return !end.StartedAt.Time.Before(s.mainsDone)
}
