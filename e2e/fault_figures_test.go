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

// defaultDeadline is the default of terminationDeadlineSeconds.
const defaultDeadline = 30 * time.Second

// faultFigures are the results of a scenario.
type faultFigures struct {
	jobs, pods, faults int
	// stuck are Jobs that have not finished or have running containers.
	stuck int
	// doubleRuns are Jobs with more pods, runs or restarts of the main container than without sidecars.
	doubleRuns int
	// wrong are Jobs with the wrong condition or too few runs of the main container.
	wrong int
	// reversals are pods that left a terminal phase.
	reversals int
	// crrs is the number of CRRs, and mostCRRs the most for one pod.
	crrs, mostCRRs int
	// hasty are CRRs that were created before the deadline of the previous one.
	hasty int
	took  time.Duration
	// latencies are the sorted times from the main container's finishedAt, in whole seconds, to the first recorded terminal phase.
	latencies []time.Duration
}

func (f faultFigures) percentile(p int) time.Duration {
	if len(f.latencies) == 0 {
		return 0
	}
	return f.latencies[(len(f.latencies)-1)*p/100].Round(100 * time.Millisecond)
}

// row returns the row of docs/reliability.md.
func (f faultFigures) row(scenario string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d, at most %d, hasty %d | %.1f / %.1f / %.1f s | %.0f s |",
		scenario, f.jobs, f.faults, f.stuck, f.doubleRuns, f.wrong, f.reversals, f.crrs, f.mostCRRs, f.hasty,
		f.percentile(50).Seconds(), f.percentile(99).Seconds(), f.percentile(100).Seconds(), f.took.Seconds())
}

// figures evaluates every Job by its status and by the runs that its main container counted.
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
			f.evaluate(seen, job, &figures)
		}
		for _, record := range seen.AllPods() {
			f.measure(seen, record, &figures)
		}
	})
	slices.Sort(figures.latencies)
	return figures
}

func (f *faultJobs) evaluate(seen harness.Seen, job faultJob, figures *faultFigures) {
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
		f.wrong("Job %s (policy %s) had %d pods and %d runs of its main container, want %d and %d, with %d restarts: %s",
			job.name, job.policy.name(), len(pods), runs, job.pods, job.runs, restarts, seen.Describe(job.name))
	}
	opposite := batchv1.JobFailed
	if job.outcome == batchv1.JobFailed {
		opposite = batchv1.JobComplete
	}
	if reason, is := harness.JobCondition(seen.Job(job.name), opposite); is || runs < max(job.runs, 1) {
		figures.wrong++
		f.wrong("Job %s (policy %s, %d runs of %d) is %s: %s, want %s: %s",
			job.name, job.policy.name(), runs, job.runs, opposite, reason, job.outcome, seen.Describe(job.name))
	}
}

// wrong reports a wrong result of a Job: as an error, or in the log of a control.
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
	f.RequireNoReversal(record)
	if record.Reversal() != "" {
		figures.reversals++
	}
	crrs := seen.CRRs(record.Pod.Name)
	figures.crrs += len(crrs)
	figures.mostCRRs = max(figures.mostCRRs, len(crrs))
	slices.SortFunc(crrs, func(a, b *harness.CRR) int { return a.Created.Compare(b.Created) })
	for i := 1; i < len(crrs); i++ {
		if apart := crrs[i].Created.Sub(crrs[i-1].Created); apart < defaultDeadline {
			figures.hasty++
			f.Errorf("Pod %s got two CRRs within %s: %s", record.Pod.Name, apart, seen.Describe(record.Pod.Name))
		}
	}
	// The Job controller deleted the pod, so its latency does not concern the operator.
	if record.Deleted || record.Pod.DeletionTimestamp != nil {
		return
	}
	main := record.Container(harness.MainName)
	at, finished := record.FinishedAt()
	if finished && main != nil && main.State.Terminated != nil && !main.State.Terminated.FinishedAt.IsZero() {
		figures.latencies = append(figures.latencies, at.Sub(main.State.Terminated.FinishedAt.Time))
	}
}
