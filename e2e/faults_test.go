//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// Components of the local cluster, and the node that the Jobs run on.
const (
	apiServer     = "kube-apiserver"
	etcd          = "etcd"
	kubelet       = "kubelet"
	containerd    = "containerd"
	kruiseManager = "kruise-manager"
	faultNode     = "node-1"
)

// nodeTimeout is for a node to become NotReady or Ready.
const nodeTimeout = 4 * time.Minute

const (
	// Faults stop after faultsTimeout. All Jobs must finish within faultsRecovery after that.
	faultsTimeout  = 10 * time.Minute
	faultsRecovery = 8 * time.Minute
)

// disturb injects the number of faults, each after a pause. Then it waits for the remaining Jobs and reports the results. inject returns
// false if it injected no fault.
func (f *faultJobs) disturb(scenario string, wanted int, pause func() time.Duration, inject func() bool) {
	f.Helper()
	began := time.Now()
	faults := 0
	f.feed()
	for time.Since(began) < faultsTimeout && (f.untilFinished || faults < wanted) {
		finished := f.SeenWithin(pause(), f.allFinished)
		if finished && f.untilFinished {
			break
		}
		if finished {
			f.plan(min(f.planned, jobsInFlight))
		} else if inject() {
			faults++
		}
		f.feed()
	}
	for deadline := time.Now().Add(faultsRecovery); time.Now().Before(deadline) && !f.SeenWithin(10*time.Second, f.allFinished); {
		f.feed()
	}
	f.requireAsAlone()
	f.Logf("%s: %d Jobs and %d faults within %s", scenario, len(f.jobs), faults, time.Since(began))
	if faults < wanted {
		f.Errorf("%d faults were injected within %s, want %d", faults, faultsTimeout, wanted)
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

// The operator is killed at random times. While it is away, only the admission policy decides outcomes.
func TestFaultsOperatorKilled(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	f := newFaultJobs(t)
	needsOutcomePolicy(f.Test)
	program := f.BuildOperator()
	f.untilFinished = true
	f.StandInForOperator()
	operator := f.NewOperatorProcess(program, "--leader-elect=false")
	operator.Start()
	f.plan(200)
	f.disturb("operator killed every 1 to 5 s", 28, between(time.Second, 5*time.Second), func() bool {
		if !operator.Alive() {
			t.Errorf("The operator exited:\n%s", operator.LogTail())
		}
		operator.Kill()
		operator.Start()
		return true
	})
}

// With two replicas, the leader receives SIGTERM and SIGKILL in turn and restarts.
func TestFaultsLeaderFailover(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	f := newFaultJobs(t)
	needsOutcomePolicy(f.Test)
	f.StandInForOperator()
	program := f.BuildOperator()
	replicas := []*harness.OperatorProcess{f.NewOperatorProcess(program), f.NewOperatorProcess(program)}
	for _, operator := range replicas {
		operator.Start()
		operator.WaitForReady()
	}
	f.plan(60)
	graceful := false
	f.disturb("leader receives SIGTERM and SIGKILL in turn", 6, every(5*time.Second), func() bool {
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

// The API server, etcd, the kubelet and containerd restart, by SIGTERM and SIGKILL in turn. The operator may lose its lease and exit: the
// kubelet then restarts it with backoff. While OpenKruise is down, its webhooks reject new pods.
func TestFaultsComponents(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	for _, c := range []struct {
		name       string
		components []string
		faults     int
		// down is how long they are down.
		down time.Duration
		// ends restarts them only while sidecars are terminating and no container is starting.
		ends bool
	}{
		{"API server restarted", []string{apiServer}, 4, 0, false},
		{"etcd restarted", []string{etcd}, 8, 0, false},
		{"kruise-manager and kruise-daemon down for 10 s and up", []string{kruiseManager, kruiseDaemon}, 4, 10 * time.Second, false},
		{"kubelet restarted during termination", []string{kubelet}, 4, 0, true},
		{"containerd restarted during termination", []string{containerd}, 4, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFaultJobs(t)
			restart := f.restarts(c.down, c.components...)
			if c.ends {
				f.inWaves = true
				f.plan(jobsOfWave)
				f.disturbEnds(c.name, c.faults, restart)
				return
			}
			f.plan(60)
			f.disturb(c.name, c.faults, every(40*time.Second/time.Duration(c.faults)), func() bool {
				restart()
				return true
			})
		})
	}
}

// restarts returns a fault that restarts components, alternating SIGTERM and SIGKILL. It starts them again when the test ends.
func (f *faultJobs) restarts(down time.Duration, components ...string) func() {
	f.Helper()
	for _, component := range components {
		f.RestoreWith("component", "start", component)
	}
	ends := []string{"stop", "kill"}
	return func() {
		f.Helper()
		for _, component := range components {
			f.LocalCluster("component", ends[0], component)
		}
		slices.Reverse(ends)
		if down > 0 {
			f.SeenWithin(down, f.allFinished)
		}
		for _, component := range components {
			f.LocalCluster("component", "start", component)
		}
	}
}

// disturbEnds is like disturb, but injects the fault only while sidecars are terminating and no container is starting.
func (f *faultJobs) disturbEnds(scenario string, wanted int, fault func()) {
	f.Helper()
	caught := 0
	f.disturb(scenario, wanted, every(time.Second), func() bool {
		terminating := 0
		f.SeenWithin(time.Minute, func(seen harness.Seen) error {
			if err := f.allFinished(seen); err == nil {
				return nil
			}
			if terminating = f.terminating(seen); terminating == 0 || f.starting(seen) {
				terminating = 0
				return fmt.Errorf("no sidecar is terminating, or a container is starting")
			}
			return nil
		})
		if terminating > 0 {
			fault()
		}
		caught += terminating
		return terminating > 0
	})
	f.Logf("%s: %d pods had a terminating sidecar", scenario, caught)
}

// starting reports whether the kubelet is starting a container: of a new pod, or with a swapped image.
func (f *faultJobs) starting(seen harness.Seen) bool {
	for _, record := range seen.AllPods() {
		if record.Deleted || record.Finished() {
			continue
		}
		main, sidecar := record.Container(harness.MainName), record.Container(harness.SidecarName)
		if main == nil || sidecar == nil || main.State.Terminated == nil || sidecar.State.Running == nil && sidecar.State.Terminated == nil {
			return true
		}
	}
	return false
}

// terminating counts the pods with an attempt and a running sidecar.
func (f *faultJobs) terminating(seen harness.Seen) int {
	count := 0
	for _, record := range seen.AllPods() {
		sidecar := record.Container(harness.SidecarName)
		if !record.Deleted && sidecar != nil && sidecar.State.Running != nil && attempted(seen, record) {
			count++
		}
	}
	return count
}

// attempted reports whether an attempt was made on the pod.
func attempted(seen harness.Seen, record *harness.PodRecord) bool {
	phase := record.Pod.Annotations[v1alpha1.AnnotationEnd] != "" && strings.HasPrefix(record.Pod.Annotations[v1alpha1.AnnotationMainContainers], v1alpha1.MainsDecided)
	_, swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]
	return phase || swap || len(seen.CRRs(record.Pod.Name)) > 0
}

func (f *faultJobs) waitForNode(ready corev1.ConditionStatus) {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: faultNode}}
	f.EventuallyGet(node, fmt.Sprintf("Ready of node %s to be %s", faultNode, ready), nodeTimeout, func() error {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == ready {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", node.Status.Conditions)
	})
}
