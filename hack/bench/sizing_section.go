// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// sizingSection is what docs/operations.md says of resources.
func sizingSection(r *Report) string {
	if r == nil {
		return "There are no figures for larger clusters yet. Watch the operator's own memory and CPU time, and leave room for a start."
	}
	memory, ok := memoryLine(r.growth(SubjectOperator, AxisCandidates), rssOf)
	if !ok {
		return "The [results](performance.md#results) do not have memory by live candidates, so that there is no table of sizes."
	}
	return memorySizes(r, memory) + "\n" + cpuSizes(r)
}

func memorySizes(r *Report, memory line) string {
	factor, started := startFactor(r, memory)
	t := &table{header: []string{"live candidates", "memory request"}, text: 0}
	if started {
		t.header = append(t.header, "memory limit")
	}
	for _, count := range []int{1000, 10_000, 50_000, largePods} {
		row := []string{grouped(count), roundedMemory(memory.at(count))}
		if started {
			// Nine tenths of the limit are the runtime's soft limit.
			row = append(row, roundedMemory(memory.at(count)*factor/0.9))
		}
		t.add(row...)
	}
	text := fmt.Sprintf("The request is what one copy holds at rest: %.0f MiB, and %s for each live candidate, which is an unfinished pod with "+
		"`restartPolicy` Never or OnFailure.", memory.base, memory.perPod())
	if started {
		text += fmt.Sprintf(" A start took at most %.1f times as much, and the limit leaves room for that and for `GOMEMLIMIT`.", factor)
	}
	return text + "\n\n" + t.String()
}

// roundedMemory is a quantity that holds that many MiB, in steps of 16.
func roundedMemory(mebibytes float64) string {
	return fmt.Sprintf("%dMi", int(math.Ceil(mebibytes/16))*16)
}

func cpuSizes(r *Report) string {
	greatest := 0.0
	for _, result := range r.Results {
		if result.Subject == SubjectOperator && result.measured() {
			greatest = max(greatest, result.spread(cpuOf).median)
		}
	}
	if greatest == 0 {
		return "The [results](performance.md#results) do not have the CPU time of a termination.\n"
	}
	t := &table{header: []string{"terminations/s", "CPU request"}, text: 0}
	for _, rate := range []int{1, 10, 50, 100, 500} {
		t.add(grouped(rate), fmt.Sprintf("%dm", max(10, int(math.Ceil(float64(rate)*greatest/10))*10)))
	}
	return fmt.Sprintf("A termination takes up to %.2f ms of CPU time, by the mode and the load that took most.\n\n%s", greatest, t)
}
