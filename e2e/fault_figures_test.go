//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// defaultDeadline is what a policy grants an attempt, beyond the grace period, unless it says otherwise.
const defaultDeadline = 30 * time.Second

// faultFigures are what a scenario has come to.
type faultFigures struct {
	jobs, pods, faults int
	// stuck are Jobs that have not finished, or that have processes left.
	stuck int
	// doubleRuns are Jobs whose main container ran more often, or had more pods or restarts, than without sidecars.
	doubleRuns int
	// wrong are Jobs that are Complete and were to be Failed, the other way round, or whose main container did not run.
	wrong int
	// reversals are pods whose phase was terminal and then was not.
	reversals int
	// requests are the ContainerRecreateRequests, and mostRequests those of the pod with the most.
	requests, mostRequests int
	// hasty are the requests that did not give the one before them its time.
	hasty int
	took  time.Duration
	// latencies are from the end of the main container, in whole seconds rounded down, to the first terminal phase that was
	// seen. They are sorted.
	latencies []time.Duration
}

func (f faultFigures) percentile(p int) time.Duration {
	if len(f.latencies) == 0 {
		return 0
	}
	return f.latencies[(len(f.latencies)-1)*p/100].Round(100 * time.Millisecond)
}

// row is the figures as docs/reliability.md has them.
func (f faultFigures) row(scenario string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d, at most %d, hasty %d | %.1f / %.1f / %.1f s | %.0f s |",
		scenario, f.jobs, f.faults, f.stuck, f.doubleRuns, f.wrong, f.reversals, f.requests, f.mostRequests, f.hasty,
		f.percentile(50).Seconds(), f.percentile(99).Seconds(), f.percentile(100).Seconds(), f.took.Seconds())
}

// figures judges every Job by its status and by what its main container has counted.
func (f *faultJobs) figures() faultFigures {
	f.Helper()
	figures := faultFigures{jobs: len(f.jobs)}
	f.Recorder.Look(func(seen harness.Seen) {
		stuck := f.unfinished(seen)
		figures.stuck = len(stuck)
		for _, job := range stuck {
			f.wrong("Job %s (policy %s) is stuck: %s", job.name, job.policy.name(), seen.Describe(job.name))
		}
		for _, job := range f.jobs {
			f.judge(seen, job, &figures)
		}
		for _, record := range seen.AllPods() {
			f.measure(seen, record, &figures)
		}
	})
	slices.Sort(figures.latencies)
	return figures
}

func (f *faultJobs) judge(seen harness.Seen, job faultJob, figures *faultFigures) {
	f.Helper()
	runs, pods := f.runsOf(job), seen.Pods(job.name)
	restarts := 0
	for _, record := range pods {
		if main := record.Container(harness.MainName); main != nil {
			restarts += int(main.RestartCount)
		}
	}
	if len(pods) > job.pods || job.runs > 0 && (runs > job.runs || len(pods)+restarts > job.runs) {
		figures.doubleRuns++
		f.wrong("Job %s (policy %s) was to have %d pods and %d runs of its main container, and had %d and %d, with %d restarts: %s",
			job.name, job.policy.name(), job.pods, job.runs, len(pods), runs, restarts, seen.Describe(job.name))
	}
	opposite := batchv1.JobFailed
	if job.outcome == batchv1.JobFailed {
		opposite = batchv1.JobComplete
	}
	if reason, is := harness.JobCondition(seen.Job(job.name), opposite); is || runs < max(job.runs, 1) {
		figures.wrong++
		f.wrong("Job %s (policy %s, %d runs of %d) was to be %s and is %s: %s: %s",
			job.name, job.policy.name(), runs, job.runs, job.outcome, opposite, reason, seen.Describe(job.name))
	}
}

// wrong reports what a fault must not have made of a Job. A control shows what it makes of Jobs without sidecars.
func (f *faultJobs) wrong(format string, arguments ...any) {
	f.Helper()
	if f.control {
		f.Logf(format, arguments...)
		return
	}
	f.Errorf(format, arguments...)
}

func (f *faultJobs) measure(seen harness.Seen, record *harness.PodRecord, figures *faultFigures) {
	f.Helper()
	figures.pods++
	if reversal := record.Reversal(); reversal != "" {
		figures.reversals++
		f.Errorf("Pod %s left a terminal phase: %s", record.Pod.Name, reversal)
	}
	requests := seen.Requests(record.Pod.Name)
	figures.requests += len(requests)
	figures.mostRequests = max(figures.mostRequests, len(requests))
	slices.SortFunc(requests, func(a, b *harness.Request) int { return a.Created.Compare(b.Created) })
	for i := 1; i < len(requests); i++ {
		if apart := requests[i].Created.Sub(requests[i-1].Created); apart < defaultDeadline {
			figures.hasty++
			if f.clockJumps {
				continue
			}
			f.Errorf("Pod %s was asked to end its sidecars twice within %s: %s", record.Pod.Name, apart, seen.Describe(record.Pod.Name))
		}
	}
	// A pod that its Job ended says nothing about the operator.
	if record.Deleted || record.Pod.DeletionTimestamp != nil {
		return
	}
	main := record.Container(harness.MainName)
	at, finished := record.FinishedAt()
	if finished && main != nil && main.State.Terminated != nil && !main.State.Terminated.FinishedAt.IsZero() {
		figures.latencies = append(figures.latencies, at.Sub(main.State.Terminated.FinishedAt.Time))
	}
}
