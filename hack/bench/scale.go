// SPDX-License-Identifier: Apache-2.0

package main

// Axis is what grows while the burst of completions stays the same.
type Axis string

const (
	// AxisUnrelated are running pods with restartPolicy Always, as a Deployment creates them.
	AxisUnrelated Axis = "unrelatedPods"
	// AxisCandidates are running pods with restartPolicy Never that a policy selects.
	AxisCandidates Axis = "candidates"
	// AxisPolicies are policies.
	AxisPolicies Axis = "policies"
	// AxisFinished are pods like the candidates that have succeeded, before there are candidates in a large cluster.
	AxisFinished Axis = "finishedPods"
	// AxisLarge are candidates of a large cluster. At 0, it has no pods and one policy. Otherwise it has as many finished pods.
	AxisLarge Axis = "unfinishedPods"
)

// Growth is all runs of a burst with one contender, at one count of an axis.
type Growth struct {
	Contender Contender `json:"contender"`
	Axis      Axis      `json:"axis"`
	// Count is the number of pods without the burst, or the number of policies.
	Count int         `json:"count"`
	Runs  []GrowthRun `json:"runs"`
}

// GrowthRun has the figures of one process of the contender.
type GrowthRun struct {
	// RSS is the resident memory in MiB when the contender has read everything, before the burst. Heap is the heap in use at
	// that time (go_memstats_heap_inuse_bytes), garbage included.
	RSS  float64 `json:"rssMiB"`
	Heap float64 `json:"heapMiB"`
	// Live is the heap after a garbage collection at that time (go_memstats_heap_alloc_bytes).
	Live float64 `json:"liveHeapMiB,omitempty"`
	// Burst is a burst by mode CRR, or by PodPhase in a large cluster. It is nil if it did not finish in time.
	Burst *Run `json:"burst,omitempty"`
	// Unfinished says why Burst is missing.
	Unfinished string `json:"unfinished,omitempty"`
}

// ColdStart is how soon a contender acts on pods whose main containers ended before its start.
type ColdStart struct {
	Contender Contender `json:"contender"`
	// Axis is AxisLarge in a large cluster, and otherwise empty or AxisCandidates.
	Axis Axis `json:"axis,omitempty"`
	// Candidates is the number of live pods at the start, and Finished how many of them have finished main containers.
	Candidates int            `json:"candidates"`
	Finished   int            `json:"finished"`
	Runs       []ColdStartRun `json:"runs"`
}

// ColdStartRun has milliseconds from the start of the process.
type ColdStartRun struct {
	Ready       float64 `json:"readyMilliseconds"`
	FirstAction float64 `json:"firstActionMilliseconds"`
	LastAction  float64 `json:"lastActionMilliseconds"`
	// Peak is the peak of resident memory, in MiB.
	Peak float64 `json:"peakRSSMiB"`
	// Unfinished says why LastAction, or FirstAction as well, is missing.
	Unfinished string `json:"unfinished,omitempty"`
	Watched
}

// Handover is a change of the leader while main containers end.
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
	// Gap is the time until the first action of the successor is seen.
	Gap float64 `json:"gapMilliseconds"`
	// LeaseAcquired is the time until the lease names the successor.
	LeaseAcquired float64 `json:"leaseAcquiredMilliseconds"`
	// Longest is the longest wait of a pod, from the acknowledged end of its main container.
	Longest float64 `json:"longestWaitMilliseconds"`
	// Missed are pods without an action, and Twice pods with two. Both must be zero.
	Missed int `json:"missed"`
	Twice  int `json:"twice"`
	Watched
}

func (r *Report) addGrowth(contender Contender, axis Axis, count int, run GrowthRun) {
	entry := entryOf(r, &r.Growth, Growth{Contender: contender, Axis: axis, Count: count},
		func(g *Growth) bool { return g.Contender == contender && g.Axis == axis && g.Count == count })
	entry.Runs = append(entry.Runs, run)
}

func (r *Report) addColdStart(contender Contender, axis Axis, candidates int, run ColdStartRun) {
	entry := entryOf(r, &r.ColdStarts, ColdStart{Contender: contender, Axis: axis, Candidates: candidates, Finished: coldFinished},
		func(c *ColdStart) bool {
			return c.Contender == contender && (c.Axis == AxisLarge) == (axis == AxisLarge)
		})
	entry.Runs = append(entry.Runs, run)
}

func (r *Report) addHandover(graceful bool, pods, rate int, run HandoverRun) {
	entry := entryOf(r, &r.Handovers, Handover{Graceful: graceful, Pods: pods, Rate: rate},
		func(h *Handover) bool { return h.Graceful == graceful })
	entry.Runs = append(entry.Runs, run)
}
