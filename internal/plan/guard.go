// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// phaseGuardPeriod is how long, beyond the grace period, a kubelet may take to act on a written phase before the operator
// removes the phase guard.
const phaseGuardPeriod = 5 * time.Minute

// PhaseIsGuarded reports whether the pod has a guarded terminal phase while a container still runs. The operator handles
// such a pod whatever policies say, because nobody else removes the guard.
func PhaseIsGuarded(pod *corev1.Pod) bool {
	return IsTearingDown(pod) && pod.Annotations[v1alpha1.AnnotationPhaseGuard] != ""
}

// phaseIgnored removes the guard from a phase that the kubelet has ignored for too long. While the guard is on, the
// kubelet's status updates are denied, so no later attempt can be judged. Policies do not change that.
func phaseIgnored(s *situation) *Decision {
	wait, guarded := s.untilRelease()
	if !guarded || wait > 0 {
		return nil
	}
	if denied := s.denied(v1alpha1.ModePodPhase); denied.reason != "" {
		return &Decision{
			Stage: StageStuck, Reason: denied.reason,
			Message: "the kubelet has not torn the pod down, and the guard on its phase cannot be removed: " + denied.message,
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

// untilRelease returns how long the guard stays on the written phase, and whether there is a guard. The wait is long for
// the sake of slow nodes: a phase that comes back is worse than an attempt that is judged late.
func (s *situation) untilRelease() (time.Duration, bool) {
	written := s.writtenPhase()
	if !s.Capabilities.Enabled(v1alpha1.ModePodPhase) || written == nil || s.Pod.DeletionTimestamp != nil || !PhaseIsGuarded(s.Pod) {
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
