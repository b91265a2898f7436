// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
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
