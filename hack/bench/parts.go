// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// The parts, as --parts names them.
const (
	partLatency    = "latency"
	partLargeBurst = "large-burst"
	partGrowth     = "growth"
	partColdStart  = "cold-start"
	partHandover   = "handover"
	partLarge      = "large"
	// These need the local cluster, with kubelets.
	partCompletion = "completion"
	partReversals  = "reversals"
)

// session is one run of the benchmark.
type session struct {
	settings *settings
	reporter *progress.Reporter
	cluster  *cluster.Cluster
	programs programs
	binaries string // of the API server and etcd
	report   *Report
	output   string

	directories layout.Layout
}

// measure runs the requested parts in turn.
func (x *session) measure(ctx context.Context) error {
	type run func(context.Context, *environment) error
	type measurement struct {
		part string
		run
	}
	all := []measurement{{partLatency, x.latency}, {partLargeBurst, x.largeBursts}}
	for _, g := range x.settings.growing() {
		all = append(all, measurement{partGrowth, func(ctx context.Context, e *environment) error { return x.grow(ctx, e, g) }})
	}
	all = append(all, measurement{partColdStart, x.coldStarts})
	if slices.Contains(x.settings.contenders, string(ContenderOperator)) {
		all = append(all, measurement{partHandover, x.handovers})
	}
	all = append(all, measurement{partLarge, x.large}, measurement{partCompletion, x.completions}, measurement{partReversals, x.reversals})
	for _, measurement := range all {
		if !slices.Contains(x.settings.parts, measurement.part) {
			continue
		}
		on := x.onServer
		if measurement.part == partCompletion || measurement.part == partReversals {
			on = x.onCluster
		}
		if err := on(ctx, measurement.run); err != nil {
			return fmt.Errorf("%s: %w", measurement.part, err)
		}
	}
	return nil
}

// inTurn measures cases in turn, so that other load on the machine affects all of them, and saves the results of each run.
func inTurn[T any](x *session, name string, cases []T, runsOf func(T) int, measure func(T) error) error {
	for number := range maxRuns {
		for _, one := range cases {
			if number >= runsOf(one) {
				continue
			}
			err := x.reporter.Step(fmt.Sprintf("%s, run %d of %d: %v", name, number+1, runsOf(one), one), func() error {
				return errors.Join(measure(one), x.report.save(x.output))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// onServer measures on a new API server.
func (x *session) onServer(ctx context.Context, measure func(ctx context.Context, e *environment) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := startServer(ctx, x.binaries, filepath.Join(x.directories.Repository, "config", "crd", "bases"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := x.cluster.WriteKruiseObjects(ctx, e.config, x.report.Kruise); err != nil {
		return err
	}
	return measure(ctx, e)
}

// latency measures all loads but the largest.
func (x *session) latency(ctx context.Context, e *environment) error {
	return x.measureAll(ctx, e, partLatency, x.settings.scenarios(), func(Contender) int { return x.settings.runs })
}

// largeBursts measures the largest load. OpenKruise with its default request limit takes minutes for it, so it runs once.
func (x *session) largeBursts(ctx context.Context, e *environment) error {
	var scenarios []Scenario
	for _, mode := range x.settings.modes {
		scenarios = append(scenarios, Scenario{Mode: v1alpha1.Mode(mode), Pods: x.settings.largePods})
	}
	return x.measureAll(ctx, e, partLargeBurst, scenarios, func(contender Contender) int {
		if contender == ContenderKruise {
			return 1
		}
		return x.settings.largeRuns
	})
}

func (x *session) measureAll(ctx context.Context, e *environment, part string, scenarios []Scenario, runsOf func(Contender) int) error {
	able := slices.DeleteFunc(x.settings.only(contenders), func(contender Contender) bool { return !slices.ContainsFunc(scenarios, contender.can) })
	return inTurn(x, part, able, runsOf, func(contender Contender) error {
		return measureContender(ctx, e, x.programs, contender, scenarios, x.report)
	})
}
