//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
)

// ignoredPhaseTimeout is for a cell on a kubelet that ignores phases. The operator removes the phase guard five minutes after the
// grace period, and only then can another mode follow.
const ignoredPhaseTimeout = cellTimeout + 7*time.Minute

// On kubelets to come that ignore phases, the main containers decide the outcome, with and without OpenKruise, and with and without a
// quick-exit image that has the sidecar's command. Another mode ends the sidecar, or the pod is stuck if none is left. Once the
// operator has learned that the kubelet ignores phases, it writes none.
func TestKubeletIgnoresPhase(t *testing.T) {
	ignores := onKubelet(t, kubelets.IgnorePhase, kubelets.IgnorePhaseMerge) == kubelets.IgnorePhaseMerge
	harness.Exclusive(t)
	test := harness.New(t)
	test.WholeAtEnd()
	operator := startOperator(test)
	policies := createPhasePolicies(test)
	all := phaseCells()
	t.Run("first", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				c.run(harness.Within(t, test), jobName(i), ignores)
			})
		}
	})
	requireLearned(test, operator, ignores)
	if ignores {
		requireStuckReported(test, policies, all)
		t.Run("learned", func(t *testing.T) { runLearnedCells(harness.Within(t, test), policies, all) })
	}
	figures := fmt.Sprintf("%d phases reverted, %d finished pods not torn down", reversals(test), requireTornDown(test, all, ignores))
	if ignores && !t.Failed() {
		figures += fmt.Sprintf(". Longest time from the end of main to the end of the sidecar: %v at first, %v later",
			longestEnd(test, all, jobName), longestEnd(test, all, learnedName))
	}
	// make test-kubelets copies this line into docs/reliability.md.
	t.Logf("figures: %s", figures)
}

// onKubelet skips the test unless the local cluster has one of the kubelets, and returns which.
func onKubelet(t *testing.T, names ...string) string {
	t.Helper()
	cluster, err := harness.Connect()
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := cluster.Kubelet()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, kubelet) {
		t.Skipf("Needs a cluster with KUBELET=%s (make test-kubelets)", strings.Join(names, " or KUBELET="))
	}
	return kubelet
}

// startOperator starts an operator that has learned nothing, in place of the deployed one.
func startOperator(test *harness.Test) *harness.OperatorProcess {
	test.Helper()
	program, err := buildOperator()
	if err != nil {
		test.Fatalf("Build the operator: %v", err)
	}
	test.StandInForOperator()
	operator := test.NewOperatorProcess(program, "--leader-elect=false", "--stabilization-window=0s")
	operator.Start()
	operator.WaitForReady()
	return operator
}

// requireTornDown requires that the kubelets have torn down the pods that have finished. It returns how many pods are not torn down
// because the kubelet ignored the phase and their sidecar did not run at that time.
func requireTornDown(test *harness.Test, all []phaseCell, ignores bool) int {
	test.Helper()
	idle := 0
	test.Eventually("the kubelets to tear down the pods that have finished", harness.StartTimeout, func(ctx context.Context) error {
		sandboxes, err := test.Sandboxes(ctx, faultNode, fargateNode)
		if err != nil {
			return err
		}
		idle = 0
		var kept []string
		test.Recorder.Look(func(seen harness.Seen) {
			for i, c := range all {
				for _, name := range []string{jobName(i), learnedName(i)} {
					for _, record := range seen.Pods(name) {
						switch {
						case !record.Finished() || !sandboxes[record.Pod.UID]:
						case ignores && c.idle() && name == jobName(i):
							idle++
						default:
							kept = append(kept, name+" ("+c.String()+")")
						}
					}
				}
			}
		})
		if len(kept) > 0 {
			return fmt.Errorf("%d have a sandbox: %s", len(kept), strings.Join(kept, "; "))
		}
		return nil
	})
	return idle
}

// requireLearned requires that the metric and, if the kubelet ignores phases, an event show what the operator knows about it.
func requireLearned(test *harness.Test, operator *harness.OperatorProcess, ignores bool) {
	test.Helper()
	nodes, err := test.RealNodes(test.Context())
	if err != nil {
		test.Fatal(err)
	}
	metrics, err := operator.Metrics()
	if err != nil {
		test.Fatalf("Read the operator's metrics: %v", err)
	}
	metric := fmt.Sprintf("sidecar_termination_kubelet_ignores_phase{kubelet_version=%q} 1", nodes[0].Status.NodeInfo.KubeletVersion)
	if got := strings.Contains(metrics, metric); got != ignores {
		test.Errorf("The operator knows that the kubelet ignores phases: %t, want %t", got, ignores)
	}
	if !ignores {
		return
	}
	test.Eventually("an event that the kubelet ignores phases", harness.StatusTimeout, func(ctx context.Context) error {
		events := &corev1.EventList{}
		reason := client.MatchingFields{"reason": string(v1alpha1.ReasonPhaseIgnoredByKubelet)}
		if err := test.Client.List(ctx, events, client.InNamespace(test.Namespace), reason); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// requireStuckReported requires that each policy reports its pods for which no mode is left.
func requireStuckReported(test *harness.Test, policies map[matrixColumn]*v1alpha1.SidecarTerminationPolicy, all []phaseCell) {
	test.Helper()
	stuck := map[matrixColumn]int{}
	for _, c := range all {
		if c.getsStuck() {
			stuck[c.column]++
		}
	}
	for column, count := range stuck {
		test.EventuallyStatus(policies[column], fmt.Sprintf("%d stuck pods of column %s", count, column), func(status v1alpha1.PolicyStatus) error {
			degraded := harness.Condition(status, v1alpha1.ConditionDegraded)
			if int(status.StuckPods) < count || degraded.Reason != string(v1alpha1.ReasonStuck) {
				return fmt.Errorf("stuckPods is %d, and Degraded is %+v", status.StuckPods, degraded)
			}
			return nil
		})
	}
}

// runLearnedCells runs the cells with a covering image again. The operator writes no phase, so that they end as on a released kubelet.
func runLearnedCells(test *harness.Test, policies map[matrixColumn]*v1alpha1.SidecarTerminationPolicy, all []phaseCell) {
	test.Helper()
	slots := make(chan struct{}, podsOfMatrix)
	test.Run("status of the policy", func(t *testing.T) {
		t.Parallel()
		policy := policies[matrixColumn(v1alpha1.ModePodPhase)]
		harness.Within(t, test).EventuallyStatus(policy, "the policy to report the kubelet", func(status v1alpha1.PolicyStatus) error {
			if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); degraded.Reason != string(v1alpha1.ReasonPhaseIgnoredByKubelet) {
				return fmt.Errorf("the conditions are %+v", status.Conditions)
			}
			return nil
		})
	})
	for i, c := range all {
		if !c.covered {
			continue
		}
		test.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			c.runLearned(harness.Within(t, test), learnedName(i))
		})
	}
}

// learnedName returns the name of the Job that repeats the one of jobName.
func learnedName(i int) string { return "learned-" + jobName(i) }

// reversals returns how many pods have left a terminal phase.
func reversals(test *harness.Test) int {
	test.Helper()
	count := 0
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.AllPods() {
			if record.Reversal() != "" {
				count++
			}
		}
	})
	return count
}

// longestEnd returns the longest time from the end of a main container to the end of its sidecar, among the cells in which the image
// may be swapped. Nodes report whole seconds.
func longestEnd(test *harness.Test, all []phaseCell, nameOf func(int) string) time.Duration {
	test.Helper()
	longest := time.Duration(0)
	test.Recorder.Look(func(seen harness.Seen) {
		for i, c := range all {
			if !c.covered || c.idle() {
				continue
			}
			record := seen.Pods(nameOf(i))[0]
			main, sidecar := record.Container(harness.MainName), record.Container(harness.SidecarName)
			if main.State.Terminated == nil || sidecar.State.Terminated == nil {
				test.Fatalf("A container has not terminated: %s", seen.Describe(nameOf(i)))
			}
			longest = max(longest, sidecar.State.Terminated.FinishedAt.Sub(main.State.Terminated.FinishedAt.Time))
		}
	})
	return longest
}
