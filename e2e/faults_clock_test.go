//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"
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
			if scenario.turns {
				wanted = exactly(4)
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
		})
	}
}
