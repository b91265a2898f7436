// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// growing is one axis of growth: the counts in turn, and the contenders that are measured at each.
type growing struct {
	axis       Axis
	counts     []int
	contenders []Contender
}

// growing returns the requested axes. OpenKruise has no policies. Its default request limit does not change the cost of idle
// pods and would prolong bursts, so candidates are measured without the limit.
func (s *settings) growing() []growing {
	var axes []growing
	for _, g := range []growing{
		{AxisUnrelated, s.unrelated, []Contender{ContenderOperator, ContenderKruise}},
		{AxisCandidates, s.candidates, []Contender{ContenderOperator, ContenderKruiseLifted}},
		{AxisPolicies, s.policies, []Contender{ContenderOperator}},
	} {
		g.counts = slices.Sorted(slices.Values(g.counts))
		g.contenders = s.only(g.contenders)
		if slices.Contains(s.axes, string(g.axis)) && len(g.counts) > 0 && len(g.contenders) > 0 {
			axes = append(axes, g)
		}
	}
	return axes
}

// only returns the requested ones of some contenders.
func (s *settings) only(some []Contender) []Contender {
	return slices.DeleteFunc(slices.Clone(some), func(contender Contender) bool { return !slices.Contains(s.contenders, string(contender)) })
}

// runsOf is the number of runs of a contender in the part growth.
func (s *settings) runsOf(contender Contender) int {
	if contender.kruise() {
		return 1
	}
	return s.scaleRuns
}

// policySpaces is the number of other namespaces in the axis of policies.
const policySpaces = 10

// grow measures along one axis. All runs of all contenders share one crowd.
func (x *session) grow(ctx context.Context, e *environment, g growing) error {
	others := 0
	if g.axis == AxisPolicies {
		others = policySpaces
	}
	w, err := newCrowd(ctx, e, v1alpha1.ModeCRR, others)
	if err != nil {
		return err
	}
	return x.growAmong(ctx, w, x.programs, g)
}

func (x *session) growAmong(ctx context.Context, w *crowd, p programs, g growing) error {
	for _, count := range g.counts {
		if err := x.populate(ctx, w, g.axis, count); err != nil {
			return err
		}
		err := inTurn(x, fmt.Sprintf("%d %s", count, g.axis), g.contenders, x.settings.runsOf, func(contender Contender) error {
			run, err := measureAmong(ctx, w, p, contender, Scenario{Mode: w.mode, Pods: x.settings.scalePods})
			x.report.addGrowth(contender, g.axis, count, run)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// populate creates objects until there are count. It reports each batch.
func (x *session) populate(ctx context.Context, w *crowd, axis Axis, count int) error {
	const batch = 10000
	for w.counts[axis] < count {
		next := min(w.counts[axis]+batch, count)
		if err := x.reporter.Step(fmt.Sprintf("make %d of %d %s", next, count, axis), func() error { return w.growTo(ctx, axis, next) }); err != nil {
			return err
		}
	}
	return nil
}

// Sizes of the part large, relative to its unfinished pods.
const (
	podsPerSpace  = 150
	podsPerPolicy = 15
	maxLargeCrowd = 150000
)

// largeMemory is the operator's GOMEMLIMIT in the part large. The manifests set such a limit as well.
const largeMemory = "700MiB"

// large measures one cluster as it grows, and then starts in it. It uses mode PodPhase, so that OpenKruise's manager is not needed:
// its cache of all pods would take more memory than the API server leaves.
func (x *session) large(ctx context.Context, e *environment) error {
	count := x.settings.largeCrowd
	w, err := newCrowd(ctx, e, v1alpha1.ModePodPhase, count/podsPerSpace-1)
	if err != nil {
		return err
	}
	p := x.programs
	p.kruiseManager, p.operatorMemory = "", largeMemory
	operator := []Contender{ContenderOperator}
	if err := x.growAmong(ctx, w, p, growing{AxisLarge, []int{0}, operator}); err != nil {
		return err
	}
	if err := x.populate(ctx, w, AxisPolicies, count/podsPerPolicy); err != nil {
		return err
	}
	for _, g := range []growing{{AxisFinished, []int{0, count}, operator}, {AxisLarge, []int{count}, operator}} {
		if err := x.growAmong(ctx, w, p, g); err != nil {
			return err
		}
	}
	return x.startsAmong(ctx, w, p, AxisLarge, operator)
}

// measureAmong starts the contender, waits until it has read everything, and completes a burst of pods. A contender that is
// too slow is a result, not an error.
func measureAmong(ctx context.Context, w *crowd, p programs, contender Contender, scenario Scenario) (run GrowthRun, err error) {
	r, err := p.start(ctx, w.e, contender)
	if err != nil {
		return unfinished(ctx, run, err)
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	if err := awaitQuietWithServer(ctx, w.e, r); err != nil {
		return unfinished(ctx, run, err)
	}
	used, err := usageOf(r.measured.Identity)
	if err != nil {
		return run, err
	}
	run.RSS = mebibytes(used.RSS)
	memory, err := memoryOf(ctx, r.metrics)
	if err != nil {
		return run, err
	}
	run.Heap = memory.inUse / (1 << 20)
	if err := collect(ctx, r.profiles); err != nil {
		return run, err
	}
	if memory, err = memoryOf(ctx, r.metrics); err != nil {
		return run, err
	}
	run.Live = memory.allocated / (1 << 20)
	for _, load := range []Scenario{{Mode: scenario.Mode, Pods: min(warmUpPods, scenario.Pods)}, scenario} {
		burst, err := completeAndRemove(ctx, w, r, contender, load)
		if err != nil {
			return unfinished(ctx, run, err)
		}
		run.Burst = &burst
	}
	return run, nil
}

// unfinished records an error as a result, unless the benchmark was interrupted.
func unfinished(ctx context.Context, run GrowthRun, err error) (GrowthRun, error) {
	run.Burst = nil
	if ctx.Err() != nil {
		return run, errors.Join(ctx.Err(), err)
	}
	run.Unfinished = err.Error()
	return run, nil
}

// completeAndRemove runs a scenario among the crowd and removes its pods.
func completeAndRemove(ctx context.Context, w *crowd, r *running, contender Contender, scenario Scenario) (run Run, err error) {
	defer func() {
		err = errors.Join(err, removePods(ctx, w.e, w.c, w.namespace, numbered(burstPods, scenario.Pods)))
	}()
	ctx, cancel := context.WithTimeout(ctx, scenario.timeLimit())
	defer cancel()
	return complete(ctx, w.e, r, contender, scenario, w.namespace)
}
