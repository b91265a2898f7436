// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
)

// spread is the median of one figure over all runs, with the least and the greatest.
type spread struct{ median, least, greatest float64 }

// spreadOf is the spread of one figure of each run; that of no runs is zero.
func spreadOf[R any](runs []R, figure func(R) float64) spread {
	if len(runs) == 0 {
		return spread{}
	}
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = figure(run)
	}
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (middle + values[len(values)/2-1]) / 2
	}
	return spread{middle, values[0], values[len(values)-1]}
}

func (r *Result) spread(figure func(Run) float64) spread { return spreadOf(r.Runs, figure) }

// text gives the median, and the range in brackets if it is one.
func (s spread) text(format string) string {
	if s.greatest == 0 {
		return "-"
	}
	median, least, greatest := fmt.Sprintf(format, s.median), fmt.Sprintf(format, s.least), fmt.Sprintf(format, s.greatest)
	if least == greatest {
		return median
	}
	return fmt.Sprintf("%s (%s-%s)", median, least, greatest)
}
