// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is one measured quantity with the values of all contenders that have it.
type figure struct {
	name, format string
	values       map[Contender]spread
}

// spread is the median of one figure over all runs, with the least and the greatest.
type spread struct{ median, least, greatest float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return spread{(low + high) / 2, sorted[0], sorted[len(sorted)-1]}
}

// text gives the median, and the range in brackets if it is one.
func (s spread) text(format string) string {
	median, least, greatest := fmt.Sprintf(format, s.median), fmt.Sprintf(format, s.least), fmt.Sprintf(format, s.greatest)
	if least == greatest {
		return median
	}
	return fmt.Sprintf("%s (%s-%s)", median, least, greatest)
}

// measured returns one value for each run that has it. Zero means that the run does not.
func measured[R any](runs []R, value func(R) float64) []float64 {
	return slices.DeleteFunc(counted(runs, value), func(value float64) bool { return value == 0 })
}

// counted returns one value for each run. Zero is a value.
func counted[R any](runs []R, value func(R) float64) []float64 {
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = value(run)
	}
	return values
}

// figures are the rows of the tables, in order.
type figures []*figure

func (f *figures) row(name, format string) *figure {
	if known := f.named(name); known != nil {
		return known
	}
	added := &figure{name: name, format: format, values: map[Contender]spread{}}
	*f = append(*f, added)
	return added
}

func (f *figures) named(name string) *figure {
	for _, known := range *f {
		if known.name == name {
			return known
		}
	}
	return nil
}

// add adds the values of a contender, if there are any.
func (f *figures) add(name, format string, contender Contender, values ...float64) {
	if len(values) > 0 {
		f.row(name, format).values[contender] = spreadOf(values)
	}
}

// addRatio adds the ratio of two medians, if there are both.
func (f *figures) addRatio(name string, contender Contender, values, base []float64) {
	if len(values) > 0 && len(base) > 0 {
		f.add(name, "%.2f", contender, spreadOf(values).median/spreadOf(base).median)
	}
}

// figures returns everything that was measured.
func (r *Report) figures() figures {
	all := &figures{}
	for _, result := range r.sorted() {
		r.addLoad(all, result)
	}
	for _, result := range r.Results {
		addRequests(all, result)
	}
	for _, growth := range r.Growth {
		r.addGrowing(all, growth)
	}
	for _, contender := range contenders {
		all.add("live heap per unfinished Job-type pod", "%.2f KB", contender, heapPer(r.growth(contender, AxisCandidates))...)
		all.add("live heap per other pod", "%.2f KB", contender, heapPer(r.growth(contender, AxisUnrelated))...)
		all.add("live heap per finished pod", "%.2f KB", contender, heapPer(r.growth(contender, AxisFinished))...)
	}
	for _, start := range r.ColdStarts {
		addColdStart(all, start)
	}
	for _, handover := range r.Handovers {
		addHandover(all, handover)
	}
	r.addCompletions(all)
	return *all
}

// sorted returns the results by scenario in the order of the first run, and by contender.
func (r *Report) sorted() []*Result {
	first := map[Scenario]int{}
	for i, result := range slices.Backward(r.Results) {
		first[result.Scenario] = i
	}
	return slices.SortedStableFunc(slices.Values(r.Results), func(a, b *Result) int {
		return cmp.Or(first[a.Scenario]-first[b.Scenario], slices.Index(contenders, a.Contender)-slices.Index(contenders, b.Contender))
	})
}

func (r *Report) addLoad(all *figures, result *Result) {
	for _, quantity := range []struct {
		name, format string
		value        func(Run) float64
	}{
		{"pods/s", "%.0f", perSecond},
		{"p50", "%.1f ms", func(run Run) float64 { return run.P50 }},
		{"p99", "%.1f ms", func(run Run) float64 { return run.P99 }},
		{"CPU per pod", "%.2f ms", func(run Run) float64 { return run.CPU }},
		{"API server CPU per pod", "%.2f ms", func(run Run) float64 { return run.APIServerCPU }},
		{"API server garbage collection per pod", "%.2f ms", func(run Run) float64 { return run.APIServerGC }},
		{"OpenKruise manager CPU per pod", "%.2f ms", func(run Run) float64 { return run.KruiseCPU }},
		{"CPUs busy", "%.0f %%", func(run Run) float64 { return run.Busy }},
		{"RSS", "%.0f MiB", func(run Run) float64 { return run.RSS }},
		{"reconciles per pod", "%.2f", func(run Run) float64 { return run.Reconciles }},
	} {
		all.add(fmt.Sprintf("%s: %s", result.Scenario, quantity.name), quantity.format, result.Contender, measured(result.Runs, quantity.value)...)
	}
	for _, run := range result.Runs {
		for _, request := range slices.Sorted(maps.Keys(run.Requests)) {
			perPod := spreadOf(counted(result.Runs, func(run Run) float64 { return run.Requests[request] }))
			if perPod.median >= 0.01 || perPod.median <= -0.01 {
				all.row(fmt.Sprintf("%s: %s per pod", result.Scenario, request), "%.2f").values[result.Contender] = perPod
			}
		}
	}
	for _, bare := range []Contender{ContenderFloor, ContenderWrites} {
		i := slices.IndexFunc(r.Results, func(other *Result) bool { return other.Contender == bare && other.Scenario == result.Scenario })
		if i >= 0 {
			name := fmt.Sprintf("%s: rate, relative to `%s`", result.Scenario, bare)
			all.addRatio(name, result.Contender, counted(result.Runs, perSecond), counted(r.Results[i].Runs, perSecond))
		}
	}
}

func perSecond(run Run) float64 { return run.PerSecond }

// addRequests adds the writes and events per pod. Their figures are the greatest medians of all loads by the mode.
func addRequests(all *figures, result *Result) {
	if len(result.Runs) == 0 {
		return
	}
	for _, quantity := range []struct {
		name  string
		value func(Run) float64
	}{{"writes", writes}, {"events", events}} {
		values := all.row(fmt.Sprintf("%s per pod, %s", quantity.name, result.Scenario.Mode), "%.2f").values
		if perPod := spreadOf(counted(result.Runs, quantity.value)); perPod.median >= values[result.Contender].median {
			values[result.Contender] = perPod
		}
	}
}

// writes is how many writes to the pod and its requests a run took per pod, refused ones included.
func writes(run Run) float64 {
	return run.writesTo("pods", "pods/status", "containerrecreaterequests")
}

// events is how many writes of events a run took per pod.
func events(run Run) float64 { return run.writesTo("events") }

func (run Run) writesTo(resources ...string) float64 {
	sum := 0.0
	for key, perPod := range run.Requests {
		verb, resource, _ := strings.Cut(key, " ")
		resource, _, _ = strings.Cut(resource, " (")
		if slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, verb) && slices.Contains(resources, resource) {
			sum += perPod
		}
	}
	return sum
}

// axes name what grows.
var axes = map[Axis]string{
	AxisUnrelated: "other pods", AxisCandidates: "unfinished Job-type pods", AxisPolicies: "policies", AxisFinished: "finished pods",
	AxisLarge: "unfinished and as many finished pods",
}

// memoryAtRest is the name of a figure of every count.
const memoryAtRest = "RSS at rest"

func (r *Report) addGrowing(all *figures, growth *Growth) {
	prefix := fmt.Sprintf("%d %s: ", growth.Count, axes[growth.Axis])
	add := func(name, format string, value func(GrowthRun) float64) {
		all.add(prefix+name, format, growth.Contender, measured(growth.Runs, value)...)
	}
	add(memoryAtRest, "%.0f MiB", func(run GrowthRun) float64 { return run.RSS })
	add("heap at rest", "%.0f MiB", func(run GrowthRun) float64 { return run.Heap })
	add("live heap at rest", "%.0f MiB", liveOf)
	add("burst: pods/s", "%.0f", burstRate)
	if growth.Axis == AxisLarge {
		add("burst: API server CPU per pod", "%.1f ms", ofBurst(func(run *Run) float64 { return run.APIServerCPU }))
		add("burst: API server garbage collection per pod", "%.1f ms", ofBurst(func(run *Run) float64 { return run.APIServerGC }))
	}
	if least := r.growth(growth.Contender, growth.Axis)[0]; least != growth {
		name := fmt.Sprintf("%sburst: rate, relative to that at %d", prefix, least.Count)
		all.addRatio(name, growth.Contender, measured(growth.Runs, burstRate), measured(least.Runs, burstRate))
	}
}

var burstRate = ofBurst(func(run *Run) float64 { return run.PerSecond })

// ofBurst returns a figure of the burst, or 0 without one.
func ofBurst(value func(*Run) float64) func(GrowthRun) float64 {
	return func(run GrowthRun) float64 {
		if run.Burst == nil {
			return 0
		}
		return value(run.Burst)
	}
}

func liveOf(run GrowthRun) float64 { return run.Live }

// growth returns a contender's results along an axis, the least count first.
func (r *Report) growth(contender Contender, axis Axis) []*Growth {
	var along []*Growth
	for _, growth := range r.Growth {
		if growth.Contender == contender && growth.Axis == axis {
			along = append(along, growth)
		}
	}
	slices.SortFunc(along, func(a, b *Growth) int { return cmp.Compare(a.Count, b.Count) })
	return along
}

// heapPer returns the live heap per pod in KB (1,000 bytes), between the medians of the least and the greatest count. It
// returns nothing unless two counts have the figure.
func heapPer(along []*Growth) []float64 {
	along = slices.DeleteFunc(along, func(growth *Growth) bool { return len(measured(growth.Runs, liveOf)) == 0 })
	if len(along) < 2 {
		return nil
	}
	first, last := along[0], along[len(along)-1]
	grown := spreadOf(measured(last.Runs, liveOf)).median - spreadOf(measured(first.Runs, liveOf)).median
	return []float64{grown * (1 << 20) / 1000 / float64(last.Count-first.Count)}
}

func addColdStart(all *figures, start *ColdStart) {
	prefix := "cold start: "
	if start.Axis == AxisLarge {
		prefix = fmt.Sprintf("cold start among %d of both: ", start.Candidates-start.Finished)
	}
	add := func(name, format string, value func(ColdStartRun) float64) {
		all.add(prefix+name, format, start.Contender, measured(start.Runs, value)...)
	}
	add("ready", "%.0f ms", func(run ColdStartRun) float64 { return run.Ready })
	add("first pod acted on", "%.0f ms", func(run ColdStartRun) float64 { return run.FirstAction })
	add("all pods acted on", "%.0f ms", func(run ColdStartRun) float64 { return run.LastAction })
	add("peak of RSS", "%.0f MiB", func(run ColdStartRun) float64 { return run.Peak })
}

func addHandover(all *figures, handover *Handover) {
	signal := "SIGKILL"
	if handover.Graceful {
		signal = "SIGTERM"
	}
	add := func(name, format string, value func(HandoverRun) float64) {
		all.add(fmt.Sprintf("handover after %s: %s", signal, name), format, ContenderOperator, measured(handover.Runs, value)...)
	}
	add("next action", "%.0f ms", func(run HandoverRun) float64 { return run.Gap })
	add("lease acquired", "%.0f ms", func(run HandoverRun) float64 { return run.LeaseAcquired })
	add("longest wait", "%.0f ms", func(run HandoverRun) float64 { return run.Longest })
	wrong := 0
	for _, run := range handover.Runs {
		wrong += run.Missed + run.Twice
	}
	all.add(fmt.Sprintf("handover after %s: pods missed or ended twice, in all runs", signal), "%.0f", ContenderOperator, float64(wrong))
}

// print writes all figures as a table, with a column for each contender that was measured.
func (r *Report) print(to io.Writer) error {
	all := r.figures()
	columns := slices.DeleteFunc(slices.Clone(contenders), func(contender Contender) bool {
		return !slices.ContainsFunc(all, func(f *figure) bool { _, ok := f.values[contender]; return ok })
	})
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(out, "FIGURE")
	for _, contender := range columns {
		_, _ = fmt.Fprintf(out, "\t%s", contender)
	}
	for _, figure := range all {
		_, _ = fmt.Fprintf(out, "\n%s", figure.name)
		for _, contender := range columns {
			text := absent
			if value, ok := figure.values[contender]; ok {
				text = value.text(figure.format)
			}
			_, _ = fmt.Fprintf(out, "\t%s", text)
		}
	}
	_, _ = fmt.Fprintln(out)
	return out.Flush()
}

// Names of figures with targets.
const (
	toNativeP50 = "Job finished: p50, relative to `native`"
	toNativeP99 = "Job finished: p99, relative to p50 of `native`"
)

// addCompletions adds the figures of Jobs on kubelets.
func (r *Report) addCompletions(all *figures) {
	native := 0.0
	for _, c := range r.Completions {
		if c.Contender == ContenderNative {
			native = c.P50[stepJob]
		}
	}
	add := func(name, format string, unit float64, value func(*Completion) float64) {
		for _, c := range r.Completions {
			if value(c) > 0 && unit > 0 {
				all.add(name, format, c.Contender, value(c)/unit)
			}
		}
	}
	median := func(seen step) func(*Completion) float64 { return func(c *Completion) float64 { return c.P50[seen] } }
	p99 := func(c *Completion) float64 { return c.P99 }
	add(toNativeP50, "%.2f", native, median(stepJob))
	add(toNativeP99, "%.2f", native, p99)
	for _, seen := range steps {
		add(string(seen)+": p50", "%.2f s", 1000, median(seen))
	}
	add("Job finished: p99", "%.2f s", 1000, p99)
	for i, results := range [][]*Completion{r.Completions, r.Reversals} {
		for _, c := range results {
			kind := []string{"Jobs", "mixed Jobs"}[i]
			all.add(kind, "%.0f", c.Contender, float64(c.Jobs))
			all.add(kind+": phase reversals", "%.0f", c.Contender, float64(c.Reversals))
			all.add(kind+": wrong outcomes", "%.0f", c.Contender, float64(c.Wrong))
		}
	}
}
