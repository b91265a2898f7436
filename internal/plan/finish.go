// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Finish decides what a person who finishes a stuck pod does now: it ends the sidecars by the mode, PodPhase or Image, as Next would,
// or does nothing. Limits of the operator do not count: the flags that turn modes off, and the longest grace period. A
// decision that is stuck has no actions.
func Finish(snapshot Snapshot, mode v1alpha1.Mode, now time.Time) Decision {
	if HasTerminalPhase(snapshot.Pod) {
		return *ignored(v1alpha1.ReasonPodFinished, "the pod has finished")
	}
	snapshot.Capabilities.EnabledModes = EnabledModes{Image: true, PodPhase: PodPhaseEnabled}
	snapshot.Capabilities.MaxGracePeriod = 0 // but maxGraceOfPhase
	// The write that ends the pod marks it, too.
	snapshot.AssumeMarked = true
	snapshot.View.Sidecars = slices.Clone(snapshot.View.Sidecars)
	for i := range snapshot.View.Sidecars {
		sidecar := &snapshot.View.Sidecars[i]
		sidecar.Mode, sidecar.Fallback = mode, v1alpha1.FallbackDisabled
	}
	s := newSituation(snapshot, now)
	// An image cannot be swapped again.
	s.retry = mode == v1alpha1.ModePodPhase
	decision := s.applyRules()
	if decision.Stage == StageStuck {
		decision.Writes, decision.RequeueAfter = nil, 0
	}
	return decision
}
