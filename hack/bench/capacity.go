// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// capacity is what larger clusters are computed from.
type capacity struct {
	// memory is resident memory by live candidates.
	memory line
	// cpu is milliseconds of the operator per termination, and apiServerCPU those of the API server.
	cpu, apiServerCPU float64
	// writes are all writes per termination, events included.
	writes float64
	// leader is how many terminations a second one leader has done in a burst, and floor how many bare clients have done, with
	// the same reports and the same writes.
	leader, floor float64
}

// capacityOf reads the operator's figures of mode CRR. The second result names what was not measured.
func capacityOf(r *Report) (capacity, []string) {
	var c capacity
	var missing []string
	var ok bool
	if c.memory, ok = memoryLine(r.growth(SubjectOperator, AxisCandidates), rssOf); !ok {
		missing = append(missing, "memory by live candidates")
	}
	operator, bare := r.burst(SubjectOperator), r.burst(SubjectFloor)
	if !operator.measured() {
		missing = append(missing, "the operator's burst of 500 by mode CRR")
	} else {
		c.leader = operator.spread(perSecond).median
		c.cpu, _ = r.greatest(SubjectOperator, v1alpha1.ModeCRR, cpuOf)
		c.apiServerCPU, _ = r.greatest(SubjectOperator, v1alpha1.ModeCRR, func(run Run) float64 { return run.APIServerCPU })
		c.writes = operator.spread(writes).median + operator.spread(events).median
	}
	if !bare.measured() {
		missing = append(missing, "the bare clients' burst of 500 by mode CRR")
	} else {
		c.floor = bare.spread(perSecond).median
	}
	return c, missing
}

// startFactor is how much more resident memory the operator's cold start took at most than it has at rest with the same
// candidates.
func startFactor(r *Report, memory line) (float64, bool) {
	greatest := 0.0
	for _, start := range r.ColdStarts {
		if start.Subject != SubjectOperator {
			continue
		}
		for _, run := range start.Runs {
			greatest = max(greatest, run.Peak/memory.at(start.Candidates))
		}
	}
	return max(greatest, 1), greatest > 0
}
