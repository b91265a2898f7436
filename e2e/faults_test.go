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
	// faultsVariable set to "all" runs every scenario at full length (make test-e2e-faults).
	faultsVariable = "FAULTS"

	// Faults stop after faultsTimeout. All Jobs must finish within faultsRecovery after that.
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

// amount is how many faults a scenario requires.
type amount struct {
	least int
	// planned creates more Jobs until all faults are injected. Otherwise faults continue as long as there are Jobs.
	planned bool
}

// exactly is a planned number of faults.
func exactly(faults int) amount { return amount{least: faults, planned: true} }

// whileJobsRun injects faults until all Jobs have finished, and requires at least this number.
func whileJobsRun(least int) amount { return amount{least: least} }

// disturb injects faults, each after a pause. Then it waits for the remaining Jobs and reports the results. inject returns false
// if it injected no fault.
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
			f.plan(min(f.planned, jobsInFlight))
		} else if inject() {
			faults++
		}
		f.feed()
	}
	f.finish()
	figures := f.figures()
	figures.faults, figures.took = faults, time.Since(began)
	f.Logf("| scenario | Jobs | faults | stuck | double runs | wrong outcomes | reversals | CRRs | p50 / p99 / max | took |\n%s", figures.row(scenario))
	if faults < wanted.least {
		f.Errorf("%d faults were injected within %s, want %d", faults, faultsTimeout, wanted.least)
	}
}

// finish waits for all Jobs. figures reports stuck ones.
func (f *faultJobs) finish() {
	f.Helper()
	for deadline := time.Now().Add(faultsRecovery); time.Now().Before(deadline); {
		f.feed()
		if f.SeenWithin(10*time.Second, f.allFinished) {
			return
		}
	}
}

func every(pause time.Duration) func() time.Duration {
	return func() time.Duration { return pause }
}

// between returns pauses of pseudo-random length, the same in each run.
func between(shortest, longest time.Duration) func() time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	return func() time.Duration { return shortest + time.Duration(random.Int64N(int64(longest-shortest))) }
}

// The operator is killed at random times.
func TestFaultsOperatorKilled(t *testing.T) {
	harness.Exclusive(t)
	// About half the faults of the measurement in docs/reliability.md.
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
			t.Errorf("The operator exited:\n%s", operator.LogTail())
		}
		operator.Kill()
		operator.Start()
		return true
	})
}

// With two replicas, the leader receives SIGTERM and SIGKILL in turn and restarts as the standby.
func TestFaultsLeaderFailover(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.StandInForOperator()
	program := f.BuildOperator()
	replicas := []*harness.OperatorProcess{f.NewOperatorProcess(program), f.NewOperatorProcess(program)}
	for _, operator := range replicas {
		operator.Start()
		operator.WaitForReady()
	}
	f.plan(60)
	graceful := false
	f.disturb("leader receives SIGTERM and SIGKILL in turn", exactly(6), every(5*time.Second), func() bool {
		leader := waitForLeader(f, replicas)
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

func waitForLeader(f *faultJobs, replicas []*harness.OperatorProcess) *harness.OperatorProcess {
	f.Helper()
	var leader *harness.OperatorProcess
	f.Eventually("a replica to lead", harness.StartTimeout, func(context.Context) error {
		for _, operator := range replicas {
			// A replica that lost its lease exits. The kubelet would restart it.
			operator.Start()
			if operator.Leads() {
				leader = operator
				return nil
			}
		}
		return fmt.Errorf("no replica leads")
	})
	return leader
}
