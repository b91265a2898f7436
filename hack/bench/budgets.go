// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	// budgetBurst and budgetRate are the loads that budgets are of.
	budgetBurst = 500
	budgetRate  = 50
	// nothing is how many KB per pod count as none: what one run differs from the next by, over 50,000 pods.
	nothing = 0.05
)

// budget is a figure that the operator is to keep to.
type budget struct {
	name, target, unit string
	// limit is the greatest value that meets the budget, or with atLeast the least.
	limit   float64
	atLeast bool
	// figure computes a subject's value; false says that its data were not measured.
	figure func(r *Report, decisions []*Microbench, subject Subject) (float64, bool)
}

// budgets are all of them. What becomes of pods has a page of its own.
var budgets = []budget{
	{
		name: "memory per live candidate pod, live heap", target: "<= 3.5 KB", unit: "%.2f KB", limit: 3.5,
		figure: func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
			return heapPer(r, subject, AxisCandidates)
		},
	},
	{
		name: "memory per other pod, live heap", target: fmt.Sprintf("none (< %g KB)", nothing), unit: "%.2f KB", limit: nothing,
		figure: func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
			return heapPer(r, subject, AxisUnrelated)
		},
	},
	{
		name: "burst of 500, mode CRR: rate, by that of `floor`", target: ">= 0.9", unit: "%.2f", limit: 0.9, atLeast: true,
		figure: func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
			return rateBy(r.burst(subject), r.burst(SubjectFloor))
		},
	},
	{
		name: "backlog of 500, mode CRR: rate, by that of `writes`", target: ">= 0.9", unit: "%.2f", limit: 0.9, atLeast: true,
		figure: func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
			return rateBy(r.backlog(subject), r.backlog(SubjectWrites))
		},
	},
	{
		name: "50 a second, mode CRR: p50", target: "<= 5 ms", unit: "%.1f ms", limit: 5,
		figure: ofSteady(v1alpha1.ModeCRR, func(run Run) float64 { return run.P50 }),
	},
	{
		name: "50 a second, mode CRR: p99", target: "<= 12 ms", unit: "%.1f ms", limit: 12,
		figure: ofSteady(v1alpha1.ModeCRR, func(run Run) float64 { return run.P99 }),
	},
	{name: "writes per pod, mode CRR", target: "1", unit: "%.2f", limit: 1, figure: ofAnyLoad(v1alpha1.ModeCRR, writes)},
	{name: "writes per pod, mode PodPhase", target: "1", unit: "%.2f", limit: 1, figure: ofAnyLoad(v1alpha1.ModePodPhase, writes)},
	{name: "writes per pod, mode Image", target: "1", unit: "%.2f", limit: 1, figure: ofAnyLoad(v1alpha1.ModeImage, writes)},
	{name: "events per pod, mode CRR", target: "<= 1", unit: "%.2f", limit: 1, figure: ofAnyLoad(v1alpha1.ModeCRR, events)},
	{
		name: "pod event at 10,000 policies", target: "<= 10 µs", unit: "%.1f µs", limit: 10,
		figure: func(_ *Report, decisions []*Microbench, subject Subject) (float64, bool) {
			event := find(decisions, "PodEvent/Policies10000")
			if event == nil || subject != SubjectOperator {
				return 0, false
			}
			return spreadOf(event.Runs, microseconds).median, true
		},
	},
}

// beside are whose figures stand beside the operator's: nothing that watches pods can be faster than the first.
var beside = []Subject{SubjectFloor, SubjectKruise, SubjectKruiseLifted}

// row is the budget's row in the table: the operator's figure with its verdict, and those beside it.
func (b budget) row(r *Report, decisions []*Microbench) []string {
	row := []string{b.name, b.target, absent, "not measured"}
	if value, measured := b.value(r, decisions, SubjectOperator); measured {
		row[2], row[3] = fmt.Sprintf(b.unit, value), b.verdict(value)
	}
	for _, subject := range beside {
		cell := absent
		if value, measured := b.value(r, decisions, subject); measured {
			cell = fmt.Sprintf(b.unit, value)
		}
		row = append(row, cell)
	}
	return row
}

// value is the figure with two decimals, for what counts is what the table says.
func (b budget) value(r *Report, decisions []*Microbench, subject Subject) (float64, bool) {
	value, measured := b.figure(r, decisions, subject)
	return math.Round(value*100)/100 + 0, measured
}

func (b budget) verdict(value float64) string {
	switch {
	case b.atLeast && value < b.limit:
		return fmt.Sprintf("**missed** by %.0f %%", 100*(b.limit-value)/b.limit)
	case !b.atLeast && value > b.limit:
		return fmt.Sprintf("**missed** by %.0f %%", 100*(value-b.limit)/b.limit)
	}
	return "met"
}

// measured reports whether there is a run that was finished.
func (r *Result) measured() bool { return r != nil && len(r.Runs) > 0 }

// rateBy is the rate of the one as a part of that of the other.
func rateBy(one, other *Result) (float64, bool) {
	if !one.measured() || !other.measured() {
		return 0, false
	}
	return one.spread(perSecond).median / other.spread(perSecond).median, true
}

// heapPer is a subject's live heap per pod along an axis, in KB.
func heapPer(r *Report, subject Subject, axis Axis) (float64, bool) {
	heap, ok := memoryLine(r.growth(subject, axis), liveOf)
	return heap.each, ok
}

func ofSteady(mode v1alpha1.Mode, figure func(Run) float64) func(*Report, []*Microbench, Subject) (float64, bool) {
	return func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
		steady := r.steady(subject, mode, budgetRate)
		if !steady.measured() {
			return 0, false
		}
		return steady.spread(figure).median, true
	}
}

func ofAnyLoad(mode v1alpha1.Mode, figure func(Run) float64) func(*Report, []*Microbench, Subject) (float64, bool) {
	return func(r *Report, _ []*Microbench, subject Subject) (float64, bool) {
		return r.greatest(subject, mode, figure)
	}
}

// greatest is the greatest median of all loads of a subject by the mode.
func (r *Report) greatest(subject Subject, mode v1alpha1.Mode, figure func(Run) float64) (float64, bool) {
	greatest, found := 0.0, false
	for _, result := range r.Results {
		if result.Subject == subject && result.Scenario.Mode == mode && result.measured() {
			greatest, found = max(greatest, result.spread(figure).median), true
		}
	}
	return greatest, found
}

func perSecond(run Run) float64              { return run.PerSecond }
func microseconds(run MicrobenchRun) float64 { return run.Microseconds }
