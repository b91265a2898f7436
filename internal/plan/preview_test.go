// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// ModeOptions ignores failed attempts, and answers before the main containers are done. TestFallbackOrder covers the order.
func TestModeOptions(t *testing.T) {
	for name, s := range map[string]plan.Snapshot{
		"main runs":       observed(newPod(never, running("main"), running("proxy")), oneProxy(), unmarked),
		"failed attempts": observed(finishedMain(never), oneProxy(), attempted(crrAttempt(1, "proxy"), swap("proxy"))),
	} {
		want := []plan.ModeOption{{Mode: crr}, {Mode: podPhase}, {Mode: image}}
		if diff := cmp.Diff(want, plan.ModeOptions(s, s.View.Sidecars[0])); diff != "" {
			t.Errorf("%s: ModeOptions() (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllAttempts(t *testing.T) {
	phase := plan.Attempt{Mode: podPhase, Number: 1, Started: done}
	for name, tc := range map[string]struct {
		snapshot plan.Snapshot
		want     []plan.Attempt
	}{
		"none":                 {observed(finishedMain(never), oneProxy()), nil},
		"of the snapshot":      {observed(finishedMain(never), oneProxy(), attempted(crrAttempt(1, "proxy"))), []plan.Attempt{crrAttempt(1, "proxy")}},
		"the phase":            {observed(finishedMain(never), oneProxy(), endedByPhase, attempted(crrAttempt(1, "proxy"))), []plan.Attempt{crrAttempt(1, "proxy"), phase}},
		"a mark while it runs": {observed(newPod(never, running("main"), running("proxy")), oneProxy(), ending(v1alpha1.EndPodPhase)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.AllAttempts(tc.snapshot)); diff != "" {
				t.Errorf("AllAttempts() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMainDone(t *testing.T) {
	unchanged := func(*plan.Snapshot) {}
	for name, tc := range map[string]struct {
		main   container
		change func(*plan.Snapshot)
		want   bool
	}{
		"running":                {running("main"), unchanged, false},
		"ended":                  {exited("main", 0), unchanged, true},
		"all containers restart": {exited("main", 0), condition(corev1.AllContainersRestarting), false},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := observed(newPod(never, tc.main, running("proxy")), oneProxy(), tc.change)
			if got := snapshot.MainDone("main"); got != tc.want {
				t.Errorf("MainDone: got %t, want %t", got, tc.want)
			}
		})
	}
}
