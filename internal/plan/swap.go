// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// unrecordedSwap returns an attempt of mode Image whose record is lost and whose effect is not: sidecars that have their
// quick-exit image already, where mode Image comes first. It returns nil when there are none.
//
// virtual-kubelet writes a pod's status together with the labels and annotations of the copy that its provider has
// (updatePodStatus in node/pod.go), so that a provider that has not heard of the swap yet takes the record back. The
// images are of the spec, which a status update leaves alone. The attempt is taken to have begun at the last event that
// is known; should it have begun later, its deadline comes early, and an end after that still counts.
func (s *situation) unrecordedSwap() *Attempt {
	if s.mainsDone.IsZero() {
		return nil
	}
	var restarts map[string]int32
	started := s.mainsDone
	for _, target := range s.View.Targets {
		container, status := containerOf(s.Pod, target.Container), statusOf(s.Pod, target.Container)
		imageFirst := s.Node == NodeVirtual || target.Mode == v1alpha1.ModeImage
		if !imageFirst || target.Image == "" || container == nil || status == nil || container.Image != target.Image || s.recordsSwap(target.Container) {
			continue
		}
		if restarts == nil {
			restarts = map[string]int32{}
		}
		restarts[target.Container] = status.RestartCount
		started = later(started, s.mainsDone.Add(target.Drain))
		if state := status.State; state.Running != nil {
			started = later(started, state.Running.StartedAt.Time)
		} else if state.Terminated != nil {
			started = later(started, state.Terminated.FinishedAt.Time)
		}
	}
	if restarts == nil {
		return nil
	}
	return &Attempt{Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, RestartCounts: restarts, Started: started}
}

// recordsSwap reports whether an attempt of mode Image on the container is on record.
func (s *situation) recordsSwap(name string) bool {
	for _, attempt := range s.Attempts {
		if attempt.Mode == v1alpha1.ModeImage && attempt.covers(name) {
			return true
		}
	}
	return false
}

// swappedRunEnded reports whether the end of a container whose image was swapped is that of its new image, which was
// started after the main containers were done. Of a provider that does not say when a container started, it goes by the
// restarts.
func (s *situation) swappedRunEnded(status *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	if end.StartedAt.IsZero() {
		return status.RestartCount > 0
	}
	return !end.StartedAt.Time.Before(s.mainsDone)
}
