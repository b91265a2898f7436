// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Report is all that the benchmark has measured, with what it was measured on.
type Report struct {
	Started    time.Time `json:"started"`
	Machine    Machine   `json:"machine"`
	Kubernetes string    `json:"kubernetes"`
	Kruise     string    `json:"kruise,omitempty"`
	// Operator tells builds of it apart.
	Operator string    `json:"operator,omitempty"`
	Results  []*Result `json:"results"`
	// What grows with the cluster, and what happens when the operator starts or goes.
	Growth     []*Growth    `json:"growth,omitempty"`
	ColdStarts []*ColdStart `json:"coldStarts,omitempty"`
	Handovers  []*Handover  `json:"handovers,omitempty"`

	touched map[any]bool // entries that this session has added to
}

// Result is all runs of one scenario with one subject.
type Result struct {
	Subject  Subject  `json:"subject"`
	Scenario Scenario `json:"scenario"`
	Runs     []Run    `json:"runs"`
}

// add adds a run to the results of its scenario and subject. The first one of a session replaces what was kept of them.
func (r *Report) add(subject Subject, scenario Scenario, run Run) {
	result := entryOf(r, &r.Results, Result{Subject: subject, Scenario: scenario},
		func(x *Result) bool { return x.Subject == subject && x.Scenario == scenario })
	result.Runs = append(result.Runs, run)
}

// save writes the report as JSON.
func (r *Report) save(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the directory of the results: %w", err)
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
