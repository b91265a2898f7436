//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// faultsVariable set to "all" has every scenario run, at full length (make test-e2e-faults).
	faultsVariable = "FAULTS"

	// Faults end after this time at the latest, and everything must have come to its end this long after the last one.
	faultsTimeout  = 10 * time.Minute
	faultsRecovery = 8 * time.Minute
)

func allFaults() bool { return os.Getenv(faultsVariable) == "all" }

// onlyWithAllFaults marks a scenario that takes minutes.
func onlyWithAllFaults(t *testing.T) {
	t.Helper()
	skipUnlessAllFaults(t)
	harness.Exclusive(t)
}

func skipUnlessAllFaults(t *testing.T) {
	t.Helper()
	if !allFaults() {
		t.Skipf("set %s=all (make test-e2e-faults)", faultsVariable)
	}
}

// amount is how many faults a scenario is to have.
type amount struct {
	least int
	// planned is false where faults go on for as long as there are Jobs. Otherwise there are more Jobs for as long as faults
	// are left.
	planned bool
}

// exactly is a planned number of faults.
func exactly(faults int) amount { return amount{least: faults, planned: true} }

// whileJobsRun has faults go on until all Jobs have finished, which a fast machine must not come to with fewer than these.
func whileJobsRun(least int) amount { return amount{least: least} }

// disturb injects one fault after the other, each after a pause. Then it waits for the Jobs that are left, and reports what
// came of all. inject returns false when there was nothing to disturb.
func (f *faultJobs) disturb(scenario string, wanted amount, pause func() time.Duration, inject func() bool) {
	f.Helper()
	began := time.Now()
	faults := 0
	f.feed()
	for time.Since(began) < faultsTimeout && (!wanted.planned || faults < wanted.least) {
		finished := f.SeenWithin(pause(), f.allFinished)
		if finished && !wanted.planned {
			break
		}
		if finished {
			f.plan(min(f.planned, jobsUnderWay))
		} else if inject() {
			faults++
		}
		f.noteMissing()
		f.feed()
	}
	f.finish()
	figures := f.figures()
	figures.faults, figures.took = faults, time.Since(began)
	f.Logf("| scenario | Jobs | faults | stuck | double runs | wrong outcomes | reversals | requests | p50 / p99 / max | took |\n%s", figures.row(scenario))
	if faults < wanted.least {
		f.Errorf("%d faults were injected within %s, and %d were to be.", faults, faultsTimeout, wanted.least)
	}
}

// finish waits for all Jobs. Those that are stuck are reported by figures.
func (f *faultJobs) finish() {
	f.Helper()
	for deadline := time.Now().Add(faultsRecovery); time.Now().Before(deadline); f.noteMissing() {
		f.feed()
		if f.SeenWithin(10*time.Second, f.allFinished) {
			return
		}
	}
}

func (f *faultJobs) noteMissing() {
	f.Helper()
	f.Eventually("the API server to list pods", harness.StartTimeout, f.Recorder.NoteMissing)
}

func every(pause time.Duration) func() time.Duration {
	return func() time.Duration { return pause }
}

// between returns pauses of random length, the same ones in each run.
func between(shortest, longest time.Duration) func() time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	return func() time.Duration { return shortest + time.Duration(random.Int64N(int64(longest-shortest))) }
}

// The operator is killed again and again, at times that have nothing to do with what it does, and starts with an empty
// memory each time.
func TestFaultsOperatorKilled(t *testing.T) {
	harness.Exclusive(t)
	// About half as many faults as there were when the figures of docs/reliability.md were taken.
	jobs, least := 20, 2
	if allFaults() {
		jobs, least = 200, 28
	}
	f := newFaultJobs(t)
	f.StandInForOperator()
	operator := f.NewOperatorProcess(f.BuildOperator(), "--leader-elect=false")
	operator.Start()
	f.plan(jobs)
	f.disturb("operator killed every 1 to 5 s", whileJobsRun(least), between(time.Second, 5*time.Second), func() bool {
		if !operator.Alive() {
			t.Errorf("The operator ended by itself; its last words:\n%s", operator.LogTail())
		}
		operator.Kill()
		operator.Start()
		return true
	})
}

// Of two copies one leads, and is ended by SIGTERM and SIGKILL in turn. It comes back as the one that waits.
func TestFaultsLeaderFailover(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.StandInForOperator()
	program := f.BuildOperator()
	copies := []*harness.OperatorProcess{f.NewOperatorProcess(program), f.NewOperatorProcess(program)}
	for _, operator := range copies {
		operator.Start()
		operator.WaitForReady()
	}
	f.plan(60)
	graceful := false
	f.disturb("leader ended by SIGTERM and SIGKILL in turn", exactly(6), every(5*time.Second), func() bool {
		leader := waitForLeader(f, copies)
		graceful = !graceful
		if graceful {
			leader.Stop()
		} else {
			leader.Kill()
		}
		leader.Start()
		return true
	})
}

func waitForLeader(f *faultJobs, copies []*harness.OperatorProcess) *harness.OperatorProcess {
	f.Helper()
	var leader *harness.OperatorProcess
	f.Eventually("one copy of the operator to lead", harness.StartTimeout, func(context.Context) error {
		for _, operator := range copies {
			// A copy that lost its lease ends itself, and is started again as by the kubelet.
			operator.Start()
			if operator.Leads() {
				leader = operator
				return nil
			}
		}
		return fmt.Errorf("no copy leads")
	})
	return leader
}
