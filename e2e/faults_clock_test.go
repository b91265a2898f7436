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

// clockError is more than any deadline of the operator, and less than the age of the cluster's certificates, which a client
// whose clock is behind would not take for valid.
const clockError = 50 * time.Minute

// The operator's clock is behind, is ahead, or changes from the one to the other at each start.
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

// wasOff fails unless the operator's clock has been off by each of the offsets: the record beside a phase has the time by the
// operator's clock, and the main container has ended a moment before by that of the node.
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
			f.Errorf("No phase was written with the clock off by %s, but by %v", offset, found)
		}
	}
}
