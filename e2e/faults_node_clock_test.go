//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// nodeClockVariable is the variable of `make cluster-up` that sets how far the clocks of nodes are ahead.
const nodeClockVariable = "NODE_CLOCK"

// The clocks of the kubelet, of containerd and of OpenKruise's daemon differ from the operator's.
func TestFaultsNodeClock(t *testing.T) {
	value := os.Getenv(nodeClockVariable)
	if value == "" {
		t.Skipf("set %s for the cluster and for this test (make test-e2e-node-faults)", nodeClockVariable)
	}
	offset, err := time.ParseDuration(value)
	if err != nil {
		t.Fatalf("Parse %s: %v", nodeClockVariable, err)
	}
	harness.Exclusive(t)
	for _, scenario := range []struct {
		name   string
		kruise bool
	}{
		{"with OpenKruise", true},
		{"without OpenKruise", false},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			f := newFaultJobs(t)
			f.nodeClock = offset
			if !scenario.kruise {
				f.RestoreWith("kruise", "install")
				f.LocalCluster("kruise", "remove")
			}
			f.plan(2 * len(faultPolicies) * len(mainKinds))
			f.disturb("clocks of nodes "+value+", "+scenario.name, whileJobsRun(0), every(10*time.Second), func() bool { return false })
			f.wasOff(-offset)
		})
	}
}
