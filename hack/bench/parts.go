// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// The parts, as --parts names them.
const (
	partLatency    = "latency"
	partLargeBurst = "large-burst"
	partGrowth     = "growth"
	partColdStart  = "cold-start"
	partHandover   = "handover"
)

func partNames() []string {
	return []string{partLatency, partLargeBurst, partGrowth, partColdStart, partHandover}
}

func axisNames() []string {
	return []string{string(AxisUnrelated), string(AxisCandidates), string(AxisPolicies)}
}

// What bounds the load of the parts other than latency.
const (
	maxCrowd    = 100000
	maxPolicies = 20000
)

func (s *settings) checkScale() error {
	for _, part := range s.parts {
		if !slices.Contains(partNames(), part) {
			return fmt.Errorf("--parts has %q; it may have %q", part, partNames())
		}
	}
	for _, axis := range s.axes {
		if !slices.Contains(axisNames(), axis) {
			return fmt.Errorf("--axes has %q; it may have %q", axis, axisNames())
		}
	}
	if s.largeRuns < 1 || s.largePods < 1 || s.largePods > maxPods {
		return fmt.Errorf("--large-runs must be at least 1, and --large-pods from 1 to %d", maxPods)
	}
	if s.scaleRuns < 1 || s.scalePods < 1 || s.scalePods > maxPods {
		return fmt.Errorf("--scale-runs must be at least 1, and --scale-pods from 1 to %d", maxPods)
	}
	for _, list := range []struct {
		flag        string
		counts      []int
		least, most int
	}{
		{"unrelated", s.unrelated, 0, maxCrowd}, {"candidates", s.candidates, 0, maxCrowd}, {"policies", s.policies, 1, maxPolicies},
		{"cold-start-candidates", []int{s.coldStart}, coldFinished, maxCrowd},
		{"handover-pods", []int{s.handoverPods}, 2 * handoverBefore, maxPods},
	} {
		for _, count := range list.counts {
			if count < list.least || count > list.most {
				return fmt.Errorf("--%s has %d; it may have %d to %d", list.flag, count, list.least, list.most)
			}
		}
	}
	return nil
}

// session is one run of the benchmark.
type session struct {
	settings *settings
	reporter *progress.Reporter
	cluster  *cluster.Cluster
	programs programs
	binaries string // of the API server and etcd
	crds     string
	report   *Report
	output   string
}

// save keeps what has been measured so far.
func (x *session) save() error { return x.report.save(x.output) }

// measure runs the parts that are asked for, one after the other.
func (x *session) measure(ctx context.Context) error {
	s := x.settings
	if slices.Contains(s.parts, partLatency) {
		if err := x.onServer(ctx, x.latency); err != nil {
			return fmt.Errorf("%s: %w", partLatency, err)
		}
	}
	if slices.Contains(s.parts, partLargeBurst) {
		if err := x.onServer(ctx, x.largeBursts); err != nil {
			return fmt.Errorf("%s: %w", partLargeBurst, err)
		}
	}
	if slices.Contains(s.parts, partGrowth) {
		for _, g := range s.growing() {
			if err := x.onServer(ctx, func(ctx context.Context, e *environment) error { return x.grow(ctx, e, g) }); err != nil {
				return fmt.Errorf("%s, %s: %w", partGrowth, g.axis, err)
			}
		}
	}
	if slices.Contains(s.parts, partColdStart) {
		if err := x.onServer(ctx, x.coldStarts); err != nil {
			return fmt.Errorf("%s: %w", partColdStart, err)
		}
	}
	if slices.Contains(s.parts, partHandover) && len(s.only([]Subject{SubjectOperator})) > 0 {
		if err := x.onServer(ctx, x.handovers); err != nil {
			return fmt.Errorf("%s: %w", partHandover, err)
		}
	}
	return nil
}

// onServer measures on an API server that nothing else has used.
func (x *session) onServer(ctx context.Context, measure func(ctx context.Context, e *environment) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := startServer(ctx, x.binaries, x.crds)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := x.cluster.WriteKruiseObjects(ctx, e.config); err != nil {
		return err
	}
	return measure(ctx, e)
}

// latency measures all loads but the largest.
func (x *session) latency(ctx context.Context, e *environment) error {
	s := x.settings
	return x.interleave(ctx, e, s.runs, s.description, func(Subject) int { return s.runs })
}

// largeBursts measures the largest load. OpenKruise's default limit on requests makes minutes of it, which say the same each
// time.
func (x *session) largeBursts(ctx context.Context, e *environment) error {
	s := x.settings
	return x.interleave(ctx, e, s.largeRuns, s.large(), func(subject Subject) int {
		if subject == SubjectKruise {
			return 1
		}
		return s.largeRuns
	})
}

// large are the scenarios of the part large-burst.
func (s *settings) large() []Scenario {
	scenarios := make([]Scenario, len(s.modes))
	for i, mode := range s.modes {
		scenarios[i] = Scenario{Mode: v1alpha1.Mode(mode), Pods: s.largePods}
	}
	return scenarios
}

// interleave measures subjects in turn, so that what else the machine does falls on all of them alike.
func (x *session) interleave(ctx context.Context, e *environment, runs int, scenarios []Scenario, runsOf func(Subject) int) error {
	for number := range runs {
		for _, name := range x.settings.subjects {
			subject := Subject(name)
			if number >= runsOf(subject) || !slices.ContainsFunc(scenarios, subject.can) {
				continue
			}
			err := x.reporter.Step(fmt.Sprintf("run %d of %d: %s", number+1, runsOf(subject), subject), func() error {
				err := measureSubject(ctx, e, x.programs, subject, scenarios, x.report)
				return errors.Join(err, x.save())
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
