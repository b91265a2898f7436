// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// loadColumns are the figures of a load.
var loadColumns = []struct {
	name, format string
	figure       func(Run) float64
}{
	{"pods/s", "%.0f", perSecond},
	{"p50 ms", "%.1f", func(r Run) float64 { return r.P50 }},
	{"p99 ms", "%.1f", func(r Run) float64 { return r.P99 }},
	{"CPU ms/pod", "%.2f", cpuOf},
	{"API server CPU ms/pod", "%.2f", func(r Run) float64 { return r.APIServerCPU }},
	{"OpenKruise beside CPU ms/pod", "%.2f", func(r Run) float64 { return r.BesideCPU }},
	{"CPUs busy %", "%.0f", func(r Run) float64 { return r.Busy }},
	{"RSS MiB", "%.0f", func(r Run) float64 { return r.RSS }},
	{"reconciles/pod", "%.2f", func(r Run) float64 { return r.Reconciles }},
}

// print writes the results as tables: one for times, one for API requests.
func (r *Report) print(to io.Writer) error {
	out := &strings.Builder{}
	fmt.Fprint(out, "SCENARIO\tSUBJECT\tRUNS")
	for _, column := range loadColumns {
		fmt.Fprintf(out, "\t%s", column.name)
	}
	fmt.Fprintln(out)
	for _, result := range r.sorted() {
		fmt.Fprintf(out, "%s\t%s\t%d", result.Scenario, result.Subject, len(result.Runs))
		for _, column := range loadColumns {
			fmt.Fprintf(out, "\t%s", result.spread(column.figure).text(column.format))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "\nSCENARIO\tSUBJECT\tAPI REQUESTS PER POD")
	for _, result := range r.sorted() {
		fmt.Fprintf(out, "%s\t%s\t%s\n", result.Scenario, result.Subject, strings.Join(result.requests(), ", "))
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, out.String()); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	return table.Flush()
}

// sorted returns the results by scenario in the order of the first run, and by subject.
func (r *Report) sorted() []*Result {
	var scenarios []Scenario
	for _, result := range r.Results {
		if !slices.Contains(scenarios, result.Scenario) {
			scenarios = append(scenarios, result.Scenario)
		}
	}
	sorted := slices.Clone(r.Results)
	slices.SortStableFunc(sorted, func(a, b *Result) int {
		if order := slices.Index(scenarios, a.Scenario) - slices.Index(scenarios, b.Scenario); order != 0 {
			return order
		}
		return slices.Index(subjects, a.Subject) - slices.Index(subjects, b.Subject)
	})
	return sorted
}

// requests are the medians of API requests per pod, those left out that are less than one in a hundred pods.
func (r *Result) requests() []string {
	keys := map[string]bool{}
	for _, run := range r.Runs {
		for key := range run.Requests {
			keys[key] = true
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		median := r.spread(func(run Run) float64 { return run.Requests[key] }).median
		if median >= 0.01 || median <= -0.01 {
			lines = append(lines, fmt.Sprintf("%s %.2f", key, median))
		}
	}
	return lines
}
