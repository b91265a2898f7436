// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/perf/benchfmt"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// documents is the directory of docs whose documents have generated parts.
type documents string

func newReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report",
		Short: "Write the kept results into docs/performance.md",
		Long:  "Reads the kept results in docs/performance. Writes a section of docs/performance.md.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			directories, err := layout.Find()
			if err != nil {
				return err
			}
			return documents(filepath.Join(directories.Repository, "docs")).write()
		},
	}
}

func (d documents) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

// write makes the section from the results.
func (d documents) write() error {
	report, err := readReport(d.path("performance", "bench.json"))
	if err != nil {
		return err
	}
	all := report.figures()
	decisions, err := readMicrobench(d.path("performance", "microbench.txt"), "PodEvent/Policies10000")
	if err != nil {
		return err
	}
	all.add("decision about a pod event at 10,000 policies", "%.1f µs", ContenderOperator, decisions...)
	section := report.section(medians, all, rows, ": "+memoryAtRest, columns)
	// These are measured on their own, and kept in files of their own.
	for _, more := range []struct {
		file, title, remark, suffix string
		first                       []row
		columns                     []Contender
	}{
		{"large.json", "Results of a large cluster", medians, ": " + memoryAtRest, largeRows, []Contender{ContenderOperator}},
		{"completion.json", "Results on kubelets", "Times are from the end of the main container.", "", completionRows, onKubelets},
	} {
		report, err := readReport(d.path("performance", more.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if len(report.OperatorArguments) > 0 {
			more.remark += fmt.Sprintf(" The operator ran with `%s`.", strings.Join(report.OperatorArguments, " "))
		}
		section += "\n\n### " + more.title + "\n\n" + report.section(more.remark, report.figures(), more.first, more.suffix, more.columns)
	}
	before, err := os.ReadFile(d.path("performance.md"))
	if err != nil {
		return fmt.Errorf("read a document: %w", err)
	}
	after, err := replaceResults(string(before), section)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.path("performance.md"), []byte(after), 0o644); err != nil {
		return fmt.Errorf("write a document: %w", err)
	}
	return nil
}

// medians is the remark about tables of medians.
const medians = "Figures are medians of all runs. 1 KB is 1,000 bytes."

// readReport reads a report that save has written.
func readReport(file string) (*Report, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	report := &Report{}
	if err := json.Unmarshal(content, report); err != nil {
		return nil, fmt.Errorf("read the results in %s: %w", file, err)
	}
	return report, nil
}

// readMicrobench reads the output of make microbench, and returns the microseconds of each run of a benchmark. Without the
// file it returns nothing.
func readMicrobench(file, name string) ([]float64, error) {
	var microseconds []float64
	reader := benchfmt.Files{Paths: []string{file}}
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("read the benchmarks of decisions: %w", record)
		case *benchfmt.Result:
			if seconds, ok := record.Value("sec/op"); ok && strings.HasPrefix(record.Name.String(), name+"-") {
				microseconds = append(microseconds, seconds*1e6)
			}
		}
	}
	if err := reader.Err(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the benchmarks of decisions: %w", err)
	}
	return microseconds, nil
}

const (
	beginResults = "<!-- begin results: written by make bench-report; changes made here are lost -->"
	endResults   = "<!-- end results -->"
)

// replaceResults puts content between the marks of the section.
func replaceResults(document, content string) (string, error) {
	before, rest, found := strings.Cut(document, beginResults)
	_, after, closed := strings.Cut(rest, endResults)
	if !found || !closed || strings.Contains(after, beginResults) {
		return "", fmt.Errorf("the document has not exactly one section that begins with %s and ends with %s", beginResults, endResults)
	}
	return before + beginResults + "\n\n" + content + "\n\n" + endResults + after, nil
}

// columns are the contenders in the table of results.
var columns = []Contender{ContenderOperator, ContenderFloor, ContenderKruise, ContenderKruiseLifted}

// absent stands for what was not measured.
const absent = "-"

// row is a row of the table of results.
type row struct {
	// name is the name of the figure.
	name string
	// target is in words, empty if there is none. limit is the greatest value that meets it, or with atLeast the least.
	target  string
	limit   float64
	atLeast bool
}

// rows are the rows of the table of results, those with a target first. The memory at rest follows.
var rows = []row{
	{name: "live heap per unfinished Job-type pod", target: "<= 3.5 KB", limit: 3.5},
	// The limit is the difference between two runs, over 50,000 pods.
	{name: "live heap per other pod", target: "none (< 0.05 KB)", limit: 0.05},
	{name: "CRR, burst of 500: rate, relative to `floor`", target: ">= 0.9", limit: 0.9, atLeast: true},
	{name: "CRR, backlog of 500: rate, relative to `writes`", target: ">= 0.9", limit: 0.9, atLeast: true},
	{name: "CRR, 500 at 50/s: p50", target: "<= 5 ms", limit: 5},
	{name: "CRR, 500 at 50/s: p99", target: "<= 12 ms", limit: 12},
	{name: "writes per pod, CRR", target: "1", limit: 1},
	{name: "writes per pod, PodPhase", target: "1", limit: 1},
	{name: "writes per pod, Image", target: "1", limit: 1},
	{name: "events per pod, CRR", target: "<= 1", limit: 1},
	{name: "decision about a pod event at 10,000 policies", target: "<= 10 µs", limit: 10},
	{name: "PodPhase, 500 at 50/s: p99"},
	{name: "Image, 500 at 50/s: p99"},
	{name: "CRR, burst of 500: pods/s"},
	{name: "CRR, burst of 500: CPU per pod"},
	{name: "CRR, burst of 5000: pods/s"},
	{name: "CRR, burst of 5000: CPU per pod"},
	{name: "cold start: ready"},
	{name: "cold start: all pods acted on"},
	{name: "cold start: peak of RSS"},
	{name: "handover after SIGTERM: next action"},
	{name: "handover after SIGKILL: next action"},
	{name: "handover after SIGTERM: pods missed or ended twice, in all runs"},
	{name: "handover after SIGKILL: pods missed or ended twice, in all runs"},
}

// completionRows are the rows with targets in the table about Jobs on kubelets.
var completionRows = []row{{name: toNativeP50, target: "<= 0.6", limit: 0.6}, {name: toNativeP99, target: "<= 1", limit: 1}}

// largeRows are the rows with targets in the table about a large cluster, and what belongs to them.
var largeRows = []row{
	{name: "150000 unfinished and as many finished pods: RSS at rest", target: "<= 800 MiB", limit: 800},
	{name: "live heap per finished pod", target: "none (< 0.05 KB)", limit: 0.05},
	{name: "cold start among 150000 of both: first pod acted on", target: "<= 15 s", limit: 15000},
	{name: "150000 unfinished and as many finished pods: burst: rate, relative to that at 0", target: ">= 0.67", limit: 0.67, atLeast: true},
	{name: "0 unfinished and as many finished pods: burst: pods/s"},
	{name: "150000 unfinished and as many finished pods: burst: pods/s"},
	{name: "cold start among 150000 of both: ready"},
	{name: "cold start among 150000 of both: all pods acted on"},
	{name: "cold start among 150000 of both: peak of RSS"},
}

// section is a generated part of docs/performance.md: a remark, and a table of the first rows and of other figures whose names
// end with the suffix.
func (r *Report) section(remark string, all figures, first []row, suffix string, columns []Contender) string {
	shown := slices.Clone(first)
	for _, figure := range all {
		if strings.HasSuffix(figure.name, suffix) && !slices.ContainsFunc(first, func(known row) bool { return known.name == figure.name }) {
			shown = append(shown, row{name: figure.name})
		}
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "Measured on %s on %d CPUs (Linux %s, %s), Kubernetes %s, OpenKruise %s. The load average of the minute before was %.2f. %s\n\n",
		r.Started.Format("2 January 2006"), r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go, strings.TrimPrefix(r.Kubernetes, "v"),
		strings.TrimPrefix(r.Kruise, "v"), r.Machine.Load, remark)
	fmt.Fprintf(out, "| figure | target | verdict |")
	for _, contender := range columns {
		fmt.Fprintf(out, " `%s` |", contender)
	}
	fmt.Fprintf(out, "\n|---|---|---|%s\n", strings.Repeat("---:|", len(columns)))
	for _, row := range shown {
		verdict, cells := "not measured", ""
		measured := all.named(row.name)
		for _, contender := range columns {
			value, ok := spread{}, false
			if measured != nil {
				value, ok = measured.values[contender]
			}
			if !ok {
				cells += " " + absent + " |"
				continue
			}
			// The verdict is about the value that the table shows.
			rounded := math.Round(value.median*100)/100 + 0 // a rounded zero has no sign
			cells += fmt.Sprintf(" "+measured.format+" |", rounded)
			if contender == ContenderOperator {
				verdict = verdictOf(rounded, row.limit, row.atLeast)
			}
		}
		target := row.target
		if target == "" {
			target, verdict = absent, absent
		}
		fmt.Fprintf(out, "| %s | %s | %s |%s\n", row.name, target, verdict, cells)
	}
	for _, growth := range r.Growth {
		for i, run := range growth.Runs {
			if reason, _, _ := strings.Cut(run.Unfinished, "\n"); reason != "" {
				fmt.Fprintf(out, "\nNot finished: `%s` with %d %s, run %d: %s.\n", growth.Contender, growth.Count, axes[growth.Axis], i+1, strings.TrimRight(reason, ".: ;"))
			}
		}
	}
	return strings.TrimSpace(out.String())
}

func verdictOf(value, limit float64, atLeast bool) string {
	if atLeast == (value >= limit) || value == limit {
		return "met"
	}
	return fmt.Sprintf("**missed** by %.0f %%", 100*math.Abs(value-limit)/limit)
}
