// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"time"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/timeline"
)

// trace returns what the operator knows of the pod's termination after the decision, or nil while a main container may run again. A
// process that finds attempts of an earlier one does not know when they started.
func (p *podState) trace(view resolve.View, decision plan.Decision, now time.Time) *timeline.Facts {
	if decision.MainsDone.IsZero() || len(view.Sidecars) == 0 {
		return nil
	}
	facts := p.facts
	if facts == nil {
		facts = &timeline.Facts{Seen: timeline.Moment{Time: now}}
		if decision.Tried != "" {
			facts.Seen = timeline.Moment{Note: timeline.NotRecorded}
			facts.AddAttempt(timeline.Attempt{
				Mode: decision.Tried, For: decision.Tried, Number: decision.TriedNumber + 1, Started: timeline.Moment{Note: timeline.NotRecorded},
			})
		}
	}
	facts.MainsDone = timeline.Moment{Time: decision.MainsDone}
	if drain := timeline.Drain(view); drain > 0 {
		facts.Drained = timeline.Moment{Time: decision.MainsDone.Add(drain)}
	}
	for _, action := range decision.Actions {
		if !action.ReleasePhase {
			facts.AddAttempt(timeline.Attempt{Mode: action.Mode, For: action.For, Number: action.Attempt + 1, Started: timeline.Moment{Time: now}})
		}
	}
	return facts
}
