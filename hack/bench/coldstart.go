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

// coldFinished is how many candidates have finished main containers before the contender starts.
const coldFinished = 100

// coldLimit is how long a contender may take from its start to its last action.
const coldLimit = 5 * time.Minute

// coldStarts starts each contender in turn, among candidates.
func (x *session) coldStarts(ctx context.Context, e *environment) error {
	w, err := newCrowd(ctx, e, v1alpha1.ModeCRR, 0)
	if err != nil {
		return err
	}
	if err := x.populate(ctx, w, AxisCandidates, x.settings.coldStart-coldFinished); err != nil {
		return err
	}
	return x.startsAmong(ctx, w, x.programs, AxisCandidates, x.settings.only([]Contender{ContenderOperator, ContenderKruiseLifted}))
}

// startsAmong starts each contender in turn. The main containers of some candidates have finished.
func (x *session) startsAmong(ctx context.Context, w *crowd, p programs, axis Axis, cases []Contender) error {
	all := func(Contender) int { return x.settings.scaleRuns }
	return inTurn(x, partColdStart, cases, all, func(contender Contender) error {
		run, err := startCold(ctx, w, p, contender, w.counts[axis])
		x.report.addColdStart(contender, axis, w.counts[axis]+coldFinished, run)
		return err
	})
}

// startCold starts the contender among candidates, and waits until it has acted on every finished pod.
func startCold(ctx context.Context, w *crowd, p programs, contender Contender, candidates int) (run ColdStartRun, err error) {
	// The names spread the finished pods over the list of all pods of the namespace, which is sorted by name.
	var names []string
	for i := range coldFinished {
		names = append(names, fmt.Sprintf("candidate-%05d-done", i*(candidates/coldFinished)))
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
	seen, err := watchFor(limited, w.e.config, w.namespace, w.mode, len(pods))
	if err != nil {
		return run, err
	}
	defer seen.stop()
	r, err := p.start(limited, w.e, contender)
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
