// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// maxNamed bounds how many jobs or nodes a message names.
const maxNamed = 3

// waysOut follows the API server's answer to a denied job.
const waysOut = ". Turn on OpenKruise's feature gate ImagePullJobGate, or correct what the message names, or remove spec.prePull from the policy. " +
	"Until then nodes pull images when they need them"

// state is a wanted job with its progress; the job may not exist yet.
type state struct {
	Job
	Existing
}

// report describes the progress of the wanted jobs. Failures come first, because they do not go away soon by themselves.
func report(wanted []Job, existing []Existing, denial string) *Report {
	var states, failed, unfinished []state
	denied := false
	for _, job := range wanted {
		s := state{Job: job}
		e := find(existing, job)
		if e != nil && !e.Deleted {
			s.Existing = *e
		}
		denied = denied || e == nil && denial != ""
		states = append(states, s)
		switch {
		case s.Failed > 0:
			failed = append(failed, s)
		case !s.finished():
			unfinished = append(unfinished, s)
		}
	}
	switch {
	case len(failed) > 0:
		return &Report{Reason: v1alpha1.ReasonPrePullFailed, Message: failure(failed)}
	case denied:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable, Message: denial + waysOut}
	case len(unfinished) > 0:
		return &Report{Reason: v1alpha1.ReasonPrePulling, Message: list(unfinished, state.progress)}
	default:
		return &Report{Holds: true, Reason: v1alpha1.ReasonPrePulled, Message: list(states, state.progress)}
	}
}

// finished reports whether the image is on every node, and there is at least one.
func (s state) finished() bool {
	return s.Begun && s.Desired > 0 && s.Succeeded >= s.Desired
}

func (s state) progress() string {
	switch {
	case !s.Begun:
		return fmt.Sprintf("%s is waiting for OpenKruise to start the ImagePullJob %s/%s; if this persists, check that OpenKruise's manager runs", s.Image, s.Job.Namespace, s.Job.Name)
	case s.Desired == 0:
		return fmt.Sprintf("%s has no node to be pulled to: OpenKruise knows no node that spec.prePull.nodeLabelSelector selects; correct it, or run OpenKruise's daemon on these nodes", s.Image)
	}
	return fmt.Sprintf("%s is on %d of %d nodes", s.Image, s.Succeeded, s.Desired)
}

// failure says which pulls failed, and where to find the cause.
func failure(failed []state) string {
	first := failed[0].Job
	return fmt.Sprintf("%s. The cause is in the events of each job (kubectl -n %s describe imagepulljob %s). Correct image or spec.prePull of the policy. "+
		"OpenKruise retries after a day. To retry at once, delete the job; the operator recreates it",
		list(failed, state.failure), first.Namespace, first.Name)
}

func (s state) failure() string {
	nodes := slices.Sorted(slices.Values(s.FailedNodes))
	return fmt.Sprintf("%s is on %d of %d nodes and could not be pulled to %s", s.Image, s.Succeeded, s.Desired, firstOf(nodes, int(s.Failed)))
}

// firstOf names up to maxNamed of the nodes. The total may be larger than the number of known names.
func firstOf(nodes []string, total int) string {
	total = max(total, len(nodes))
	if len(nodes) == 0 {
		return fmt.Sprintf("%d of them", total)
	}
	named := nodes[:min(len(nodes), maxNamed)]
	if rest := total - len(named); rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(named, ", "), rest)
	}
	return strings.Join(named, ", ")
}

// list describes up to maxNamed jobs.
func list(states []state, describe func(state) string) string {
	var parts []string
	for _, s := range states[:min(len(states), maxNamed)] {
		parts = append(parts, describe(s))
	}
	if rest := len(states) - maxNamed; rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(parts, "; ")
}
