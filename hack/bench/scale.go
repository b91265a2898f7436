// SPDX-License-Identifier: Apache-2.0

package main

// Axis is what there is more and more of, while the same burst of completions is to be dealt with.
type Axis string

const (
	// AxisUnrelated are running pods with restartPolicy Always, as a Deployment makes them: nobody's business.
	AxisUnrelated Axis = "unrelatedPods"
	// AxisCandidates are running pods with restartPolicy Never that a policy selects.
	AxisCandidates Axis = "candidates"
	// AxisPolicies are policies.
	AxisPolicies Axis = "policies"
)

// Growth is all runs of one burst with one subject, with so many of something around.
type Growth struct {
	Subject Subject `json:"subject"`
	Axis    Axis    `json:"axis"`
	// Count is of pods beyond those of the burst, or of policies with the one that selects those.
	Count int         `json:"count"`
	Runs  []GrowthRun `json:"runs"`
}

// GrowthRun is what one process of the subject has shown.
type GrowthRun struct {
	// RSS is the resident memory of the subject's process at rest, in MiB, once it has read everything and before the
	// burst. Heap is what it had in use of its heap then (go_memstats_heap_inuse_bytes), live or not yet collected.
	RSS  float64 `json:"rssMiB"`
	Heap float64 `json:"heapMiB"`
	// Live is what was left of the heap when it had been collected then (go_memstats_heap_alloc_bytes).
	Live float64 `json:"liveHeapMiB,omitempty"`
	// Burst is of completions by mode CRR. It is missing when it was not finished in time.
	Burst *Run `json:"burst,omitempty"`
	// Unfinished says why Burst is missing.
	Unfinished string `json:"unfinished,omitempty"`
}

// ColdStart is how soon a subject acts that was not running while main containers ended.
type ColdStart struct {
	Subject Subject `json:"subject"`
	// Candidates are all live pods that the subject finds, and Finished those of them of which the main container has ended.
	Candidates int            `json:"candidates"`
	Finished   int            `json:"finished"`
	Runs       []ColdStartRun `json:"runs"`
}

// ColdStartRun has milliseconds from the start of the process.
type ColdStartRun struct {
	Ready       float64 `json:"readyMilliseconds"`
	FirstAction float64 `json:"firstActionMilliseconds"`
	LastAction  float64 `json:"lastActionMilliseconds"`
	// Peak is the most that the resident memory of the process was, in MiB.
	Peak float64 `json:"peakRSSMiB"`
	// Unfinished says why LastAction, or FirstAction as well, is missing.
	Unfinished string `json:"unfinished,omitempty"`
	Watched
}

// Handover is how the work goes from one replica of the operator to the other while main containers end.
type Handover struct {
	// Graceful is true for SIGTERM, and false for SIGKILL.
	Graceful bool `json:"graceful"`
	// Pods is how many main containers end, and Rate how many a second.
	Pods int           `json:"pods"`
	Rate int           `json:"rate"`
	Runs []HandoverRun `json:"runs"`
}

// HandoverRun has milliseconds from the signal.
type HandoverRun struct {
	// Gap is until the first sight of an action of the successor.
	Gap float64 `json:"gapMilliseconds"`
	// LeaseAcquired is until the lease names the successor.
	LeaseAcquired float64 `json:"leaseAcquiredMilliseconds"`
	// Longest is the longest time that a pod waited, from the acknowledged end of its main container.
	Longest float64 `json:"longestWaitMilliseconds"`
	// Missed are pods that were not acted on, and Twice those that were acted on twice. Both must be zero.
	Missed int `json:"missed"`
	Twice  int `json:"twice"`
	Watched
}

// growthEntry returns the entry of the report as entryOf does.
func (r *Report) growthEntry(subject Subject, axis Axis, count int) *Growth {
	return entryOf(r, &r.Growth, Growth{Subject: subject, Axis: axis, Count: count},
		func(g *Growth) bool { return g.Subject == subject && g.Axis == axis && g.Count == count })
}

// coldStartEntry returns the entry of the report as entryOf does.
func (r *Report) coldStartEntry(subject Subject, candidates, finished int) *ColdStart {
	return entryOf(r, &r.ColdStarts, ColdStart{Subject: subject, Candidates: candidates, Finished: finished},
		func(c *ColdStart) bool { return c.Subject == subject })
}

// handoverEntry returns the entry of the report as entryOf does.
func (r *Report) handoverEntry(graceful bool, pods, rate int) *Handover {
	return entryOf(r, &r.Handovers, Handover{Graceful: graceful, Pods: pods, Rate: rate},
		func(h *Handover) bool { return h.Graceful == graceful })
}
