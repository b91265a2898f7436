// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// ModeOption is one mode of a sidecar's fallback chain. Reason and Message say why it cannot be used; they are empty
// where it can.
type ModeOption struct {
	Mode    v1alpha1.Mode
	Reason  v1alpha1.Reason
	Message string
}

// Usable reports whether the mode can end the sidecar.
func (o ModeOption) Usable() bool { return o.Reason == "" }

// ModeOptions lists the modes for the sidecar in the order in which Next would try them in this snapshot if the main
// containers were done. It ignores failed attempts.
func ModeOptions(snapshot Snapshot, sidecar resolve.Sidecar) []ModeOption {
	return newSituation(snapshot, time.Time{}).fallbackChain(sidecar)
}

// AllAttempts returns the attempts of the snapshot, and that of mode PodPhase which the pod shows.
func AllAttempts(snapshot Snapshot) []Attempt { return newSituation(snapshot, time.Time{}).Attempts }

// MainDone reports whether the main container has ended and will not run again.
func (s Snapshot) MainDone(name string) bool {
	return !allContainersRestarting(s.Pod) && s.terminatedForGood(name) != nil
}

// AlwaysRestarts reports whether the kubelet restarts the container whenever it exits, because of the container's own restartPolicy.
func (s Snapshot) AlwaysRestarts(name string) bool {
	container := containerOf(s.Pod, name)
	return container != nil && container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways && s.shouldRestart(container, 0)
}
