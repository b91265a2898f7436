// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// noFigures is what sections say before anything was measured.
const noFigures = "There are no figures yet: they belong to a quiet machine, and nothing is published here that was not measured so."

// resultsSection is what docs/performance.md says was measured. The report is nil before anything was.
func resultsSection(r *Report, decisions []*Microbench) string {
	switch {
	case r == nil && len(decisions) == 0:
		return noFigures
	case r == nil:
		return "Only decisions were measured.\n\n### Time of a decision\n\n" + decisionTable(decisions)
	}
	parts := []string{
		provenance(r),
		"### Targets\n\n" + budgetTable(r, decisions),
		"### Times and costs\n\n" + loadTable(r),
		"### API requests\n\n" + requestTable(r),
		"### Other pods\n\n" + growthTable(r, AxisUnrelated),
		"### Live candidates\n\n" + growthTable(r, AxisCandidates),
		"### Policies\n\n" + growthTable(r, AxisPolicies),
		"### Time of a decision\n\n" + decisionTable(decisions),
		"### Cold start\n\n" + coldStartTable(r),
		"### Handover\n\n" + handoverTable(r),
	}
	return strings.Join(parts, "\n")
}

// provenance says what the figures were measured on.
func provenance(r *Report) string {
	compared := ""
	if r.Kruise != "" {
		compared = fmt.Sprintf(", OpenKruise %s", strings.TrimPrefix(r.Kruise, "v"))
	}
	return fmt.Sprintf("Measured on %s on %d CPUs (Linux %s, %s), Kubernetes %s%s. The load average of the minute before was %s. "+
		"Figures are medians of all runs, with the least and the greatest in brackets. 1 KB is 1,000 bytes.\n",
		r.Started.Format("2 January 2006"), r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go, strings.TrimPrefix(r.Kubernetes, "v"), compared,
		r.Machine.Load)
}

func budgetTable(r *Report, decisions []*Microbench) string {
	t := &table{header: []string{"what", "target", code(SubjectOperator), "verdict"}, text: 2}
	for _, subject := range beside {
		t.header = append(t.header, code(subject))
	}
	for _, budget := range budgets {
		t.add(budget.row(r, decisions)...)
	}
	return "In a burst the ends of main containers are reported at the same time, and what `floor` shows is what this machine can do. With a " +
		"backlog the API server has nothing else to do.\n\n" + t.String()
}

func loadTable(r *Report) string {
	if len(r.Results) == 0 {
		return "These results have no loads.\n"
	}
	t := &table{header: []string{"load", "subject", "runs"}, text: 2}
	for _, column := range loadColumns {
		t.header = append(t.header, column.name)
	}
	for _, result := range r.sorted() {
		row := []string{result.Scenario.String(), code(result.Subject), fmt.Sprint(len(result.Runs))}
		for _, column := range loadColumns {
			row = append(row, result.spread(column.figure).text(column.format))
		}
		t.add(row...)
	}
	return t.String()
}

func requestTable(r *Report) string {
	if len(r.Results) == 0 {
		return "These results have no loads.\n"
	}
	t := &table{header: []string{"load", "subject", "requests per pod, medians"}, text: 3}
	for _, result := range r.sorted() {
		t.add(result.Scenario.String(), code(result.Subject), strings.Join(result.requests(), ", "))
	}
	return t.String()
}

// axes say what there is more and more of.
var axes = map[Axis]string{
	AxisUnrelated:  "pods with `restartPolicy: Always`",
	AxisCandidates: "live candidates",
	AxisPolicies:   "policies",
}

func growthTable(r *Report, axis Axis) string {
	t := &table{
		header: []string{axes[axis], "subject", "RSS MiB", "heap in use MiB", "live heap MiB", "pods/s", "p99 ms", "CPU ms/pod"}, text: 2,
	}
	var unfinished, lines []string
	for _, subject := range subjects {
		along := r.growth(subject, axis)
		for _, growth := range along {
			t.add(grouped(growth.Count), code(subject), growth.spread(rssOf).text("%.0f"), growth.spread(heapOf).text("%.1f"),
				growth.spread(liveOf).text("%.1f"), growth.burstSpread(perSecond).text("%.0f"),
				growth.burstSpread(func(run Run) float64 { return run.P99 }).text("%.1f"), growth.burstSpread(cpuOf).text("%.2f"))
			for i, run := range growth.Runs {
				if run.Unfinished != "" {
					unfinished = append(unfinished, fmt.Sprintf("- %s with %s %s, run %d: %s.\n", code(subject), grouped(growth.Count), axes[axis], i+1, oneLine(run.Unfinished)))
				}
			}
		}
		if rss, ok := memoryLine(along, rssOf); ok && axis != AxisPolicies {
			lines = append(lines, fmt.Sprintf("by %s with %s", rss.perPod(), code(subject)))
		}
	}
	if len(t.rows) == 0 {
		return fmt.Sprintf("These results do not vary the number of %s.\n", axes[axis])
	}
	text := "The times are of the same burst by mode CRR in each row.\n\n" + t.String()
	if chart := chartOf(axis); chart != "" {
		text = fmt.Sprintf("![%s](images/%s)\n\n", chartTitle(axis), chart) + text
	}
	if len(lines) > 0 {
		text += "\nBetween the first and the last row resident memory grows " + list(lines) + " for each.\n"
	}
	if len(unfinished) > 0 {
		text += "\nNot finished:\n\n" + strings.Join(unfinished, "")
	}
	return text
}

func decisionTable(decisions []*Microbench) string {
	if len(decisions) == 0 {
		return "There are no results of `make microbench`.\n"
	}
	t := &table{header: []string{"benchmark", "µs", "bytes", "allocations"}, text: 1}
	for _, benchmark := range decisions {
		t.add("`"+benchmark.Name+"`", spreadOf(benchmark.Runs, microseconds).text("%.2f"),
			spreadOf(benchmark.Runs, func(run MicrobenchRun) float64 { return run.Bytes }).text("%.0f"),
			spreadOf(benchmark.Runs, func(run MicrobenchRun) float64 { return run.Allocations }).text("%.0f"))
	}
	return "Each figure is of one operation.\n\n" + t.String()
}

func coldStartTable(r *Report) string {
	if len(r.ColdStarts) == 0 {
		return "These results have no cold start.\n"
	}
	t := &table{
		header: []string{"subject", "live candidates", "of them done", "ready ms", "first action ms", "last action ms", "peak RSS MiB"}, text: 1,
	}
	var unfinished []string
	for _, start := range r.ColdStarts {
		t.add(code(start.Subject), grouped(start.Candidates), grouped(start.Finished),
			present(start.Runs, func(run ColdStartRun) float64 { return run.Ready }).text("%.0f"),
			present(start.Runs, func(run ColdStartRun) float64 { return run.FirstAction }).text("%.0f"),
			present(start.Runs, func(run ColdStartRun) float64 { return run.LastAction }).text("%.0f"),
			present(start.Runs, func(run ColdStartRun) float64 { return run.Peak }).text("%.0f"))
		for i, run := range start.Runs {
			if run.Unfinished != "" {
				unfinished = append(unfinished, fmt.Sprintf("- %s with %s candidates, run %d: %s.\n", code(start.Subject), grouped(start.Candidates), i+1, oneLine(run.Unfinished)))
			}
		}
	}
	text := "The process starts after the main containers have ended. Times count from its start.\n\n" + t.String()
	if len(unfinished) > 0 {
		text += "\nNot finished:\n\n" + strings.Join(unfinished, "")
	}
	return text
}

func handoverTable(r *Report) string {
	if len(r.Handovers) == 0 {
		return "These results have no handover.\n"
	}
	t := &table{
		header: []string{"the leader gets", "pods", "lease taken ms", "next action ms", "longest wait of a pod ms", "pods missed", "pods ended twice"},
		text:   1,
	}
	for _, handover := range r.Handovers {
		signal := "SIGKILL"
		if handover.Graceful {
			signal = "SIGTERM"
		}
		missed, twice := 0, 0
		for _, run := range handover.Runs {
			missed, twice = missed+run.Missed, twice+run.Twice
		}
		t.add(signal, fmt.Sprintf("%s at %d/s", grouped(handover.Pods), handover.Rate),
			spreadOf(handover.Runs, func(run HandoverRun) float64 { return run.LeaseAcquired }).text("%.0f"),
			spreadOf(handover.Runs, func(run HandoverRun) float64 { return run.Gap }).text("%.0f"),
			spreadOf(handover.Runs, func(run HandoverRun) float64 { return run.Longest }).text("%.0f"),
			fmt.Sprint(missed), fmt.Sprint(twice))
	}
	return "Two replicas run, and the leader gets a signal while main containers end. Times count from the signal; pods missed and ended " +
		"twice are the sum of all runs.\n\n" + t.String()
}

// present is the spread of the runs that have the figure.
func present[R any](runs []R, figure func(R) float64) spread {
	return spreadOf(slices.DeleteFunc(slices.Clone(runs), func(run R) bool { return figure(run) == 0 }), figure)
}

func code(subject Subject) string { return "`" + string(subject) + "`" }

// oneLine is the first line of a text, without a stop at its end.
func oneLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimRight(strings.ReplaceAll(first, "|", "/"), ".: ;")
}

func cpuOf(run Run) float64 { return run.CPU }
