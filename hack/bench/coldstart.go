// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// coldFinished is of how many candidates the main container has ended before the subject is started.
const coldFinished = 100

// coldLimit is how long a subject may take from its start to its last action.
const coldLimit = 5 * time.Minute

// coldStarts starts each subject in turn while some of many candidates have long been done.
func (x *session) coldStarts(ctx context.Context, e *environment) error {
	s := x.settings
	w, err := newCrowd(ctx, e, AxisCandidates)
	if err != nil {
		return err
	}
	if err := x.reporter.Step(fmt.Sprintf("make %d candidates", s.coldStart), func() error { return w.growTo(ctx, s.coldStart-coldFinished) }); err != nil {
		return err
	}
	for number := range s.scaleRuns {
		for _, subject := range s.only([]Subject{SubjectOperator, SubjectKruiseLifted}) {
			err := x.reporter.Step(fmt.Sprintf("cold start, run %d of %d: %s", number+1, s.scaleRuns, subject), func() error {
				run, err := startCold(ctx, w, x.programs, subject)
				entry := x.report.coldStartEntry(subject, s.coldStart, coldFinished)
				entry.Runs = append(entry.Runs, run)
				return errors.Join(err, x.save())
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// startCold starts the subject and waits until it has dealt with what it finds.
func startCold(ctx context.Context, w *crowd, p programs, subject Subject) (run ColdStartRun, err error) {
	// They are spread over the list of all pods, which is in the order of names.
	var names []string
	for i := range coldFinished {
		names = append(names, fmt.Sprintf("candidate-%05d-done", i*(w.count/coldFinished)))
	}
	defer func() { err = errors.Join(err, removePods(ctx, w.e, w.c, w.namespace, names)) }()
	pods, err := createPods(ctx, w.c, w.namespace, names, newPod)
	if err != nil {
		return run, err
	}
	if err := each(ctx, len(pods), 0, func(ctx context.Context, i int) error { return reportEnd(ctx, w.c, pods, i) }); err != nil {
		return run, err
	}
	limited, cancel := context.WithTimeout(ctx, coldLimit)
	defer cancel()
	seen, err := watchFor(limited, w.e.config, w.namespace, v1alpha1.ModeCRR, len(pods))
	if err != nil {
		return run, err
	}
	defer seen.stop()
	r, err := p.start(limited, w.e, subject)
	if err == nil {
		defer func() { err = errors.Join(err, r.stop(ctx)) }()
		run.Ready = milliseconds(r.measured.ready.Sub(r.measured.begun))
		err = seen.wait(limited)
	}
	if err != nil {
		if ctx.Err() != nil {
			return run, errors.Join(ctx.Err(), err)
		}
		run.Unfinished = err.Error()
	}
	if r == nil || r.measured == nil {
		return run, nil
	}
	run.Watched = seen.watched()
	var at []time.Duration
	for _, when := range seen.times() {
		at = append(at, when.Sub(r.measured.begun))
	}
	if slices.Sort(at); len(at) > 0 {
		run.FirstAction = milliseconds(at[0])
	}
	if len(at) == len(pods) {
		run.LastAction = milliseconds(at[len(at)-1])
	}
	used, err := usageOf(r.measured.Identity)
	run.Peak = mebibytes(used.Peak)
	return run, err
}
