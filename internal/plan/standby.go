// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Standby tells a replica that does not lead when to act on one pod. It counts only time that this replica has seen pass, so that
// a wrong clock, of this or another machine, cannot make it act before the leader. The zero value has seen nothing.
type Standby struct {
	// mainsDone is when the replica first saw that the main containers are done.
	mainsDone time.Time
	// due is since when the leader should have started the first attempt.
	due time.Time
}

// Overdue reports whether the leader has left the decision waiting for the delay, so that this replica may carry it out, and
// otherwise after how long to ask again; zero means after a change. Only a first attempt is ever overdue: the deadlines that judge
// past attempts compare the clocks of two replicas. After true, the leader has the delay once more.
func (w *Standby) Overdue(view resolve.View, decision Decision, delay time.Duration, now time.Time) (bool, time.Duration) {
	if decision.MainsDone.IsZero() {
		*w = Standby{}
		return false, 0
	}
	if w.mainsDone.IsZero() {
		w.mainsDone = now
	}
	if decision.Tried != "" {
		w.due = time.Time{}
		return false, 0
	}
	if len(decision.Actions) == 0 {
		w.due = time.Time{}
		return false, decision.RequeueAfter
	}
	if w.due.IsZero() {
		w.due = now
	}
	// The drain counts from the end of the main containers by the node's clock. The standby waits for it by its own clock.
	at := later(w.due, w.mainsDone.Add(longestDrain(view, decision))).Add(delay)
	if wait := at.Sub(now); wait > 0 {
		return false, wait
	}
	w.due = now
	return true, 0
}

// longestDrain returns the longest drain of the sidecars that the decision ends. A written phase ends all of them.
func longestDrain(view resolve.View, decision Decision) time.Duration {
	var longest time.Duration
	for _, action := range decision.Actions {
		for _, sidecar := range view.Sidecars {
			if action.Mode == v1alpha1.ModePodPhase || slices.Contains(action.Containers, sidecar.Container) {
				longest = max(longest, sidecar.Drain)
			}
		}
	}
	return longest
}
