//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// clockError exceeds every deadline of the operator. The cluster's certificates must be older, or a client whose clock is behind
// rejects them.
const clockError = 50 * time.Minute

func TestFaultsClock(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	program := f.BuildOperatorWithClock()
	for _, scenario := range []struct {
		name   string
		offset time.Duration
		turns  bool
	}{
		{"operator's clock 50 minutes behind", -clockError, false},
		{"operator's clock 50 minutes ahead", clockError, false},
		{"operator's clock behind and ahead in turn, with a kill every 10 s", clockError, true},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			f := newFaultJobs(t)
			f.clockJumps = scenario.turns
			f.StandInForOperator()
			operator := f.NewOperatorProcess(program, "--leader-elect=false")
			operator.SetClock(scenario.offset)
			operator.Start()
			f.plan(32)
			offset, wanted := scenario.offset, exactly(1)
			offsets := []time.Duration{offset}
			if scenario.turns {
				offsets, wanted = append(offsets, -offset), exactly(4)
			}
			f.disturb(scenario.name, wanted, every(10*time.Second), func() bool {
				if scenario.turns {
					offset = -offset
					operator.Kill()
					operator.SetClock(offset)
					operator.Start()
				}
				return true
			})
			f.wasOff(offsets...)
		})
	}
}

// wasOff requires that phases were written with each clock offset, by comparing the time in the phase's record with the main
// container's finishedAt.
func (f *faultJobs) wasOff(offsets ...time.Duration) {
	f.Helper()
	var found []time.Duration
	f.Recorder.Look(func(seen harness.Seen) {
		for _, pod := range seen.AllPods() {
			main := pod.Container(harness.MainName)
			var record struct{ WrittenAt time.Time }
			if json.Unmarshal([]byte(pod.Pod.Annotations[v1alpha1.AnnotationPodPhase]), &record) == nil && main != nil && main.State.Terminated != nil {
				found = append(found, record.WrittenAt.Sub(main.State.Terminated.FinishedAt.Time))
			}
		}
	})
	for _, offset := range offsets {
		if !slices.ContainsFunc(found, func(d time.Duration) bool { return (d - offset).Abs() < clockError/2 }) {
			f.Errorf("No phase was written with clock offset %s, only with %v", offset, found)
		}
	}
}
