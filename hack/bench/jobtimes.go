// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Completion has the figures of all Jobs of one case.
type Completion struct {
	Case
	// AtOnce is how many Jobs were created at once, and Jobs how many there were in all.
	AtOnce int `json:"atOnce"`
	Jobs   int `json:"jobs"`
	// P50, P99 and Max are milliseconds from the end of the main container until the benchmark sees that the Job has finished.
	// Steps are medians of the milliseconds until it sees each step. Mixed cases have neither.
	P50   float64          `json:"p50Milliseconds,omitempty"`
	P99   float64          `json:"p99Milliseconds,omitempty"`
	Max   float64          `json:"maxMilliseconds,omitempty"`
	Steps map[step]float64 `json:"stepMilliseconds,omitempty"`
	// Reversals counts changes of a terminal phase, and Wrong Jobs whose outcome is not that of their main container.
	Reversals int `json:"phaseReversals"`
	Wrong     int `json:"wrongOutcomes"`
	// Problems describe the first Jobs with either.
	Problems []string `json:"problems,omitempty"`

	times map[step][]time.Duration
}

// addCompletion adds Jobs that have been watched to the results of their case.
func (r *Report) addCompletion(c Case, atOnce int, records []*jobRecord) {
	entryOf(r, &r.Completions, Completion{Case: c, AtOnce: atOnce, times: map[step][]time.Duration{}},
		func(known *Completion) bool { return known.Case == c }).add(records)
}

// maxProblems is how many problems are kept.
const maxProblems = 10

func (c *Completion) add(records []*jobRecord) {
	for _, record := range records {
		c.Jobs++
		reversals := record.reversals()
		c.Reversals += reversals
		if record.wrong() {
			c.Wrong++
		}
		if (reversals > 0 || record.wrong()) && len(c.Problems) < maxProblems {
			c.Problems = append(c.Problems, record.String())
		}
		if c.Mixed || record.ended == 0 {
			continue
		}
		for seen, at := range record.at {
			c.times[seen] = append(c.times[seen], at-record.ended)
		}
	}
	c.Steps = map[step]float64{}
	for seen, times := range c.times {
		slices.Sort(times)
		c.Steps[seen] = milliseconds(percentile(times, 50))
	}
	if all := c.times[stepJob]; len(all) > 0 {
		c.P50, c.P99, c.Max = milliseconds(percentile(all, 50)), milliseconds(percentile(all, 99)), milliseconds(all[len(all)-1])
	}
}

// completionFailures is an error if the operator caused a phase reversal or a wrong outcome.
func (r *Report) completionFailures(mixed bool) error {
	var failures []error
	for _, c := range r.Completions {
		if c.Mixed == mixed && c.Contender == ContenderOperator && c.Reversals+c.Wrong > 0 {
			failures = append(failures, fmt.Errorf("%s: %d phase reversals and %d wrong outcomes of %d Jobs, such as %s",
				c, c.Reversals, c.Wrong, c.Jobs, strings.Join(c.Problems, "; ")))
		}
	}
	return errors.Join(failures...)
}

// native returns the figures of native sidecars, or 0.
func (r *Report) native() (p50, p99 float64) {
	for _, c := range r.Completions {
		if c.Contender == ContenderNative {
			return c.P50, c.P99
		}
	}
	return 0, 0
}

// Names of the figures that have a target.
const (
	ratioP50 = "end of main container to Job finished, Auto: p50, relative to `native`"
	ratioP99 = "end of main container to Job finished, Auto: p99, relative to p50 of `native`"
)

// addCompletions adds the figures that have a target.
func (r *Report) addCompletions(all *figures) {
	p50, _ := r.native()
	for _, c := range r.Completions {
		if p50 > 0 && c.P50 > 0 && (c.Contender.kruise() || c.Mode == v1alpha1.ModeAuto) {
			all.add(ratioP50, "%.2f", c.Contender, c.P50/p50)
			all.add(ratioP99, "%.2f", c.Contender, c.P99/p50)
		}
	}
}

// completionTable is a table in Markdown, with a row for each case. Without results it is empty.
func (r *Report) completionTable() string {
	if len(r.Completions) == 0 {
		return ""
	}
	steps := []step{stepReported, stepRequested, stepSidecar, stepPod}
	out := &strings.Builder{}
	out.WriteString("| | Jobs | p50 | ratio | p99 | ratio |")
	for _, heading := range steps {
		fmt.Fprintf(out, " %s |", heading)
	}
	fmt.Fprintf(out, " phase reversals | wrong outcomes |\n|---|%s", strings.Repeat("---:|", len(steps)+7))
	cell := func(value, unit float64, format string) {
		if value == 0 || unit == 0 {
			fmt.Fprintf(out, " %s |", absent)
			return
		}
		fmt.Fprintf(out, " "+format+" |", value/unit)
	}
	p50, p99 := r.native()
	for _, c := range r.Completions {
		name := c.String()
		if c.Mixed {
			name += ", mixed"
		}
		fmt.Fprintf(out, "\n| %s | %d |", name, c.Jobs)
		cell(c.P50, 1000, "%.2f s")
		cell(c.P50, p50, "%.2f")
		cell(c.P99, 1000, "%.2f s")
		cell(c.P99, p99, "%.2f")
		for _, seen := range steps {
			cell(c.Steps[seen], 1000, "%.2f s")
		}
		fmt.Fprintf(out, " %d | %d |", c.Reversals, c.Wrong)
	}
	return out.String()
}

// completionSection is the part of docs/performance.md about Jobs on a kubelet.
func (r *Report) completionSection() string {
	return fmt.Sprintf("### Jobs on a kubelet\n\n%s The operator ran with `%s`. Times are from the end of the main container, by step the median. "+
		"Ratios are to `native` in the same run.\n\n%s", r.setup(), strings.Join(r.OperatorArguments, " "), r.completionTable())
}
