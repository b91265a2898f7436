// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// phaseGuardPeriod is how long, beyond the grace period, a kubelet may take to act upon a written phase before the
// guard is taken off it.
const phaseGuardPeriod = 5 * time.Minute

// PhaseIsGuarded reports whether the pod reads a terminal phase that the kubelet is kept from changing, while a container
// of it runs. Such a pod concerns the operator whatever is declared: nobody else takes the guard off.
func PhaseIsGuarded(pod *corev1.Pod) bool {
	return IsTearingDown(pod) && pod.Annotations[v1alpha1.AnnotationPhaseGuard] != ""
}

// phaseIgnored takes the guard off a phase that the kubelet did not act upon for long. While the guard is on, the
// kubelet's reports of such a pod are refused, and no later attempt can be judged. What is declared by now is of no account.
func phaseIgnored(s *situation) *Decision {
	wait, guarded := s.untilRelease()
	if !guarded || wait > 0 {
		return nil
	}
	if refused := s.refused(v1alpha1.ModePodPhase); refused.reason != "" {
		return &Decision{
			Stage: StageStuck, Reason: refused.reason,
			Message: "the kubelet has not torn the pod down, and the guard has to be taken off its phase: " + refused.message,
		}
	}
	written := s.writtenPhase()
	return &Decision{
		Stage:   StageTerminating,
		Reason:  v1alpha1.ReasonAttemptFailed,
		Message: fmt.Sprintf("the kubelet has not torn the pod down %s after its phase was written", s.now.Sub(written.Started).Round(time.Second)),
		Actions: []Action{{
			Mode: v1alpha1.ModePodPhase, For: written.For, Attempt: written.Number,
			Containers: runningContainers(s.Pod), ReleasePhase: true,
		}},
	}
}

// untilRelease returns how long the guard is to stay on the written phase, and whether there is one. A slow node is given
// long: a phase that comes back is worse than an attempt that is judged late.
func (s *situation) untilRelease() (time.Duration, bool) {
	written := s.writtenPhase()
	if !s.Capabilities.PodPhase.Allowed() || written == nil || s.Pod.DeletionTimestamp != nil || !PhaseIsGuarded(s.Pod) {
		return 0, false
	}
	return written.Started.Add(GracePeriod(s.Pod) + phaseGuardPeriod).Sub(s.now), true
}

// runningContainers returns the sorted names of the regular containers that run.
func runningContainers(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.State.Running != nil {
			names = append(names, status.Name)
		}
	}
	slices.Sort(names)
	return names
}
