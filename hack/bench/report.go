// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// Report is all results, with the machine and versions that they belong to.
type Report struct {
	Started    time.Time `json:"started"`
	Machine    Machine   `json:"machine"`
	Kubernetes string    `json:"kubernetes"`
	Kruise     string    `json:"kruise,omitempty"`
	// Operator identifies its build.
	Operator string    `json:"operator,omitempty"`
	Results  []*Result `json:"results"`
	// What grows with the cluster, and what happens when the operator starts or ends.
	Growth     []*Growth    `json:"growth,omitempty"`
	ColdStarts []*ColdStart `json:"coldStarts,omitempty"`
	Handovers  []*Handover  `json:"handovers,omitempty"`
	// Jobs on kubelets, with an operator that runs with these arguments.
	Completions       []*Completion `json:"completions,omitempty"`
	Reversals         []*Completion `json:"reversals,omitempty"`
	OperatorArguments []string      `json:"operatorArguments,omitempty"`

	touched map[any]bool // entries with runs of this session
}

// Result is all runs of one scenario with one contender.
type Result struct {
	Contender Contender `json:"contender"`
	Scenario  Scenario  `json:"scenario"`
	Runs      []Run     `json:"runs"`
}

// add adds a run to the results of its scenario and contender. The first one of a session replaces the kept runs.
func (r *Report) add(contender Contender, scenario Scenario, run Run) {
	result := entryOf(r, &r.Results, Result{Contender: contender, Scenario: scenario},
		func(x *Result) bool { return x.Contender == contender && x.Scenario == scenario })
	result.Runs = append(result.Runs, run)
}

// save writes the report as JSON.
func (r *Report) save(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	return layout.WriteFile(file, append(content, '\n'))
}

// continued returns the report to add to: the one in the file, or a new one if there is no file or replace is set. Results of
// another machine, operator or version are an error, because they cannot be compared.
func (r *Report) continued(file string, replace bool) (*Report, error) {
	kept, err := readReport(file)
	if replace || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	var differ []string
	for _, field := range []struct{ name, kept, now string }{
		{"CPUs", strconv.Itoa(kept.Machine.CPUs), strconv.Itoa(r.Machine.CPUs)},
		{"kernel", kept.Machine.Kernel, r.Machine.Kernel},
		{"Go", kept.Machine.Go, r.Machine.Go},
		{"Kubernetes", kept.Kubernetes, r.Kubernetes},
		{"OpenKruise", kept.Kruise, r.Kruise},
		{"operator", kept.Operator, r.Operator},
	} {
		if field.kept != field.now {
			differ = append(differ, fmt.Sprintf("%s %q, now %q", field.name, field.kept, field.now))
		}
	}
	if len(differ) > 0 {
		return nil, fmt.Errorf("%s has results of another setup (%s): name another file by --output, or discard these by --replace",
			file, strings.Join(differ, "; "))
	}
	// Keep the highest load: figures of a busy machine mean little.
	kept.Machine.Load = max(kept.Machine.Load, r.Machine.Load)
	return kept, nil
}

// entryOf returns the one of the report's entries that is meant, or a new one. The entry has the runs of this session only:
// older runs are dropped.
func entryOf[T any](r *Report, entries *[]*T, empty T, meant func(*T) bool) *T {
	i := slices.IndexFunc(*entries, meant)
	if i < 0 {
		i = len(*entries)
		*entries = append(*entries, new(T))
	}
	entry := (*entries)[i]
	if !r.touched[entry] {
		if r.touched == nil {
			r.touched = map[any]bool{}
		}
		r.touched[entry] = true
		*entry = empty
	}
	return entry
}

// Machine describes where the benchmark ran.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	// Load is the load average of the last minute before the benchmark: figures of a busy machine mean
	// little. It is 0 if unknown.
	Load float64 `json:"loadBefore,string"`
	Go   string  `json:"go"`
}

// machine describes this machine.
func machine() Machine {
	read := func(file string) string {
		content, err := os.ReadFile(file)
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(content))
	}
	lastMinute, _, _ := strings.Cut(read("/proc/loadavg"), " ")
	load, _ := strconv.ParseFloat(lastMinute, 64)
	return Machine{CPUs: runtime.NumCPU(), Kernel: read("/proc/sys/kernel/osrelease"), Load: load, Go: runtime.Version()}
}
