// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// kB is what tables call a KB.
const kB = 1000

// result returns the runs of a scenario with a subject, or nil.
func (r *Report) result(subject Subject, scenario Scenario) *Result {
	for _, result := range r.Results {
		if result.Subject == subject && result.Scenario == scenario {
			return result
		}
	}
	return nil
}

// burst returns the subject's burst by mode CRR that budgets are of, or nil.
func (r *Report) burst(subject Subject) *Result {
	return r.result(subject, Scenario{Mode: v1alpha1.ModeCRR, Pods: budgetBurst})
}

// backlog returns the subject's backlog by mode CRR that budgets are of, or nil.
func (r *Report) backlog(subject Subject) *Result {
	return r.result(subject, Scenario{Mode: v1alpha1.ModeCRR, Pods: budgetBurst, Backlog: true})
}

// steady returns the subject's load by the mode at that rate, or nil.
func (r *Report) steady(subject Subject, mode v1alpha1.Mode, rate int) *Result {
	for _, result := range r.Results {
		if s := result.Scenario; result.Subject == subject && s.Mode == mode && s.Rate == rate {
			return result
		}
	}
	return nil
}

// growth returns a subject's figures along an axis, the least count first.
func (r *Report) growth(subject Subject, axis Axis) []*Growth {
	var along []*Growth
	for _, growth := range r.Growth {
		if growth.Subject == subject && growth.Axis == axis && len(growth.Runs) > 0 {
			along = append(along, growth)
		}
	}
	slices.SortFunc(along, func(a, b *Growth) int { return cmp.Compare(a.Count, b.Count) })
	return along
}

// line is memory as a function of a count: MiB of none, and KB of each. It goes through the medians of the least and the
// greatest count.
type line struct {
	base, each float64
	// from and to are those counts.
	from, to int
}

// memoryLine is the line of one figure, if that was measured at two counts at least.
func memoryLine(along []*Growth, figure func(GrowthRun) float64) (line, bool) {
	along = slices.DeleteFunc(slices.Clone(along), func(g *Growth) bool { return g.spread(figure).greatest == 0 })
	if len(along) < 2 {
		return line{}, false
	}
	first, last := along[0], along[len(along)-1]
	low, high := first.spread(figure).median, last.spread(figure).median
	each := (high - low) / float64(last.Count-first.Count)
	return line{base: low - each*float64(first.Count), each: each * (1 << 20) / kB, from: first.Count, to: last.Count}, true
}

// perPod is what each takes, in words. What rounds to nothing has no sign.
func (l line) perPod() string { return fmt.Sprintf("%.2f KB", math.Round(l.each*100)/100+0) }

// at is the line's MiB at a count.
func (l line) at(count int) float64 { return l.base + l.each*float64(count)*kB/(1<<20) }

// spread is that of the runs that have the figure.
func (g *Growth) spread(figure func(GrowthRun) float64) spread {
	return present(g.Runs, figure)
}

// burstSpread is that of the bursts that were finished.
func (g *Growth) burstSpread(figure func(Run) float64) spread {
	var finished []Run
	for _, run := range g.Runs {
		if run.Burst != nil {
			finished = append(finished, *run.Burst)
		}
	}
	return spreadOf(finished, figure)
}

func rssOf(run GrowthRun) float64  { return run.RSS }
func heapOf(run GrowthRun) float64 { return run.Heap }
func liveOf(run GrowthRun) float64 { return run.Live }

// written are resources of which a write counts as the operator's own for a pod.
var written = []string{"pods", "pods/status", "containerrecreaterequests"}

// writes is how many writes to the pod and its requests a run took per pod, refused ones included.
func writes(run Run) float64 {
	return sumOfWrites(run, func(resource string) bool { return slices.Contains(written, resource) })
}

// events is how many writes of events a run took per pod.
func events(run Run) float64 {
	return sumOfWrites(run, func(resource string) bool { return resource == "events" })
}

func sumOfWrites(run Run, counts func(resource string) bool) float64 {
	sum := 0.0
	for key, perPod := range run.Requests {
		verb, resource, _ := strings.Cut(key, " ")
		resource, _, _ = strings.Cut(resource, " (")
		if slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, verb) && counts(resource) {
			sum += perPod
		}
	}
	return sum
}
