// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// conflictRetry is the requeue delay after a write of a stale object, or one that changed nothing. The watch usually enqueues the pod sooner.
const conflictRetry = time.Second

// maxAnswer limits the length of a kept answer, so that a note has room for those of all modes.
const maxAnswer = 400

// execution is what came of the writes of a decision.
type execution struct {
	// done are the writes that were executed: each has changed something, or found everything as wanted.
	done []executedWrite
	// denied are the modes whose writes were denied, with the answers.
	denied map[v1alpha1.Mode]string
	// stale is true if an object had changed since it was read.
	stale bool
	// err is the error of a write whose outcome is unknown, or nil.
	err error
}

type executedWrite struct {
	plan.Write
	changed bool
}

// began returns the writes that have begun to end sidecars.
func (e execution) began() []plan.Write {
	var all []plan.Write
	for _, write := range e.done {
		if write.changed && len(write.Containers) > 0 {
			all = append(all, write.Write)
		}
	}
	return all
}

// retryAfter returns when to requeue the pod because of what came of the writes, or zero. requeueAfter is that of the decision.
func (e execution) retryAfter(requeueAfter time.Duration) time.Duration {
	unchanged := len(e.done) > 0 && !e.done[len(e.done)-1].changed
	if e.stale || unchanged && requeueAfter == 0 {
		return conflictRetry
	}
	return 0
}

// act decides, and executes the decision. After a denied write it decides once more without the mode that needs the write, unless something
// has changed before.
func (r *PodReconciler) act(ctx context.Context, snapshot plan.Snapshot) (plan.Decision, execution) {
	denied := map[v1alpha1.Mode]string{}
	for {
		snapshot.Denied = denied
		decision := plan.Next(snapshot, r.options.Clock.Now())
		done := r.execute(ctx, snapshot, decision)
		again := len(done.denied) > 0 && len(done.done) == 0
		denied = merged(denied, done.denied)
		if !again || len(denied) == len(snapshot.Denied) {
			done.denied = denied
			ctrl.LoggerFrom(ctx).V(1).Info("Decided about a pod", "stage", decision.Stage, "reason", decision.Reason,
				"message", decision.Message, "writes", len(done.done), "requeueAfter", decision.RequeueAfter)
			return decision, done
		}
	}
}

// execute executes the writes of the decision in order, until one is denied, stale or fails.
func (r *PodReconciler) execute(ctx context.Context, snapshot plan.Snapshot, decision plan.Decision) execution {
	var e execution
	for _, write := range decision.Writes {
		applied, err := r.terminators[write.Mode].Execute(ctx, snapshot.Pod, write)
		if err != nil {
			e.err = err
			return e
		}
		switch applied.Result {
		case terminator.Changed, terminator.Unchanged:
		case terminator.Denied:
			ctrl.LoggerFrom(ctx).V(1).Info("The API server denied a write", "mode", write.Mode, "answer", applied.Answer.Error())
			e.denied = map[v1alpha1.Mode]string{write.Mode: safetext.Truncate(applied.Answer.Error(), maxAnswer)}
			return e
		case terminator.Stale:
			e.stale = true
			return e
		}
		if write.Mark != nil {
			r.states.marked(snapshot.Pod, applied.Pod)
		}
		if write.Mode == v1alpha1.ModeCRR {
			r.states.requested(snapshot.Pod, write.Attempt)
		}
		e.done = append(e.done, executedWrite{write, applied.Result == terminator.Changed})
	}
	return e
}

// merged returns the denials of both. It does not change its arguments.
func merged(a, b map[v1alpha1.Mode]string) map[v1alpha1.Mode]string {
	all := map[v1alpha1.Mode]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}
