// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// growing is one axis of growth: how many there are to be in turn, and who is measured among them.
type growing struct {
	axis     Axis
	counts   []int
	subjects []Subject
}

// growing returns the axes of which anything is asked for. OpenKruise has no policies. Its default limit on requests has no
// bearing on what pods cost that it does nothing about, and would make long runs of bursts longer.
func (s *settings) growing() []growing {
	var axes []growing
	for _, g := range []growing{
		{AxisUnrelated, s.unrelated, []Subject{SubjectOperator, SubjectKruise}},
		{AxisCandidates, s.candidates, []Subject{SubjectOperator, SubjectKruiseLifted}},
		{AxisPolicies, s.policies, []Subject{SubjectOperator}},
	} {
		g.counts = slices.Sorted(slices.Values(g.counts))
		g.subjects = s.only(g.subjects)
		if slices.Contains(s.axes, string(g.axis)) && len(g.counts) > 0 && len(g.subjects) > 0 {
			axes = append(axes, g)
		}
	}
	return axes
}

// only returns those of the subjects that were asked for.
func (s *settings) only(some []Subject) []Subject {
	return slices.DeleteFunc(slices.Clone(some), func(subject Subject) bool { return !slices.Contains(s.subjects, string(subject)) })
}

// runsOf is how often a subject is measured where more and more is around it.
func (s *settings) runsOf(subject Subject) int {
	if subject.kruise() {
		return 1
	}
	return s.scaleRuns
}

// grow measures along one axis. The crowd is made once and serves all runs of all subjects.
func (x *session) grow(ctx context.Context, e *environment, g growing) error {
	s := x.settings
	w, err := newCrowd(ctx, e, g.axis)
	if err != nil {
		return err
	}
	for _, count := range g.counts {
		name := fmt.Sprintf("%d %s", count, g.axis)
		if err := x.reporter.Step("make "+name, func() error { return w.growTo(ctx, count) }); err != nil {
			return err
		}
		for number := range s.scaleRuns {
			for _, subject := range g.subjects {
				if number >= s.runsOf(subject) {
					continue
				}
				err := x.reporter.Step(fmt.Sprintf("%s, run %d of %d: %s", name, number+1, s.runsOf(subject), subject), func() error {
					run, err := measureAmong(ctx, w, x.programs, subject, Scenario{Mode: v1alpha1.ModeCRR, Pods: s.scalePods})
					entry := x.report.growthEntry(subject, g.axis, count)
					entry.Runs = append(entry.Runs, run)
					return errors.Join(err, x.save())
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureAmong starts the subject, lets it read everything, and has a burst of pods complete. What the subject does not get
// done in time is no error, but said in the result.
func measureAmong(ctx context.Context, w *crowd, p programs, subject Subject, scenario Scenario) (run GrowthRun, err error) {
	r, err := p.start(ctx, w.e, subject)
	if err != nil {
		return unfinished(ctx, run, err)
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	if err := settleWithServer(ctx, w.e, r); err != nil {
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
		burst, err := completeAndRemove(ctx, w, r, subject, load)
		if err != nil {
			return unfinished(ctx, run, err)
		}
		run.Burst = &burst
	}
	return run, nil
}

// unfinished takes an error for a result, unless it is that the benchmark is to end.
func unfinished(ctx context.Context, run GrowthRun, err error) (GrowthRun, error) {
	run.Burst = nil
	if ctx.Err() != nil {
		return run, errors.Join(ctx.Err(), err)
	}
	run.Unfinished = err.Error()
	return run, nil
}

// completeAndRemove runs a scenario among the crowd and removes its pods.
func completeAndRemove(ctx context.Context, w *crowd, r *running, subject Subject, scenario Scenario) (run Run, err error) {
	defer func() {
		err = errors.Join(err, removePods(ctx, w.e, w.c, w.namespace, numbered(burstPods, 0, scenario.Pods)))
	}()
	ctx, cancel := context.WithTimeout(ctx, scenario.timeLimit())
	defer cancel()
	return complete(ctx, w.e, r, subject, scenario, w.namespace)
}
