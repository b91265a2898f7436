// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestModeOptions compares the preview with Next: the first option is a CRR after its phase exactly if Next writes that phase
// first.
func TestModeOptions(t *testing.T) {
	const first = " after its phase"
	pod := func() *corev1.Pod { return finishedMain(never) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		sidecar func(*resolve.Sidecar)
		cluster func(*plan.Snapshot)
		want    []string
	}{
		"the phase before a CRR is not a step of its own":        {pod: pod(), want: []string{"CRR" + first, "Image"}},
		"without Kruise the phase is a step":                     {pod: pod(), cluster: withoutKruise, want: []string{"PodPhase", "Image"}},
		"where exit codes are respected no phase is written":     {pod: pod(), sidecar: respect, want: []string{"CRR", "Image"}},
		"without the phase a CRR goes last":                      {pod: pod(), cluster: withoutPodPhase, want: []string{"Image", "CRR"}},
		"without the phase a declared CRR goes last":             {pod: pod(), cluster: withoutPodPhase, sidecar: mode(crr), want: []string{"Image", "CRR"}},
		"with a long grace period a CRR goes last":               {pod: pod(), cluster: grace(2 * time.Hour), want: []string{"Image", "CRR"}},
		"as a last resort the phase goes after the image":        {pod: pod(), cluster: lastResort, want: []string{"Image", "CRR" + first}},
		"a failed pod has its image swapped, and its phase last": {pod: failed(), want: []string{"Image", "CRR", "PodPhase"}},
		"a failed pod with a declared CRR has that first":        {pod: failed(), sidecar: mode(crr), want: []string{"CRR", "Image", "PodPhase"}},
		"a failed pod whose exit codes are respected has a CRR":  {pod: failed(), sidecar: respect, want: []string{"CRR", "Image"}},
		"after mode Image the CRR includes its phase":            {pod: pod(), sidecar: mode(image), want: []string{"Image", "CRR" + first}},
		"a phase already written does not go before a CRR": {
			pod: pod(), sidecar: mode(podPhase), want: []string{"PodPhase", "CRR", "Image"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			declared := sidecar("proxy")
			if tc.sidecar != nil {
				declared = sidecar("proxy", tc.sidecar)
			}
			snapshot := observed(tc.pod, sidecarsOf(declared))
			if tc.cluster != nil {
				tc.cluster(&snapshot)
			}
			var got []string
			options := plan.ModeOptions(snapshot, declared)
			for _, option := range options {
				if !option.Usable() {
					continue
				}
				step := string(option.Mode)
				if option.PhaseFirst {
					step += first
				}
				got = append(got, step)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
			actions := plan.Next(snapshot, done).Actions
			if len(actions) != 1 {
				t.Fatalf("Next writes %d things", len(actions))
			}
			if phaseOfCRR := actions[0].Mode == podPhase && actions[0].For == crr; phaseOfCRR != (tc.want[0] == "CRR"+first) {
				t.Errorf("Next has %s, and the first step is %q", describe(actions[0]), tc.want[0])
			}
		})
	}
}

func TestMainDone(t *testing.T) {
	restartingAll := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	unchanged := func(*plan.Snapshot) {}
	for name, tc := range map[string]struct {
		main   container
		change func(*plan.Snapshot)
		want   bool
	}{
		"running":                {running("main"), unchanged, false},
		"ended":                  {exited("main", 0), unchanged, true},
		"all containers restart": {exited("main", 0), restartingAll, false},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := observed(newPod(never, tc.main, running("proxy")), oneProxy(), tc.change)
			if got := snapshot.MainDone("main"); got != tc.want {
				t.Errorf("MainDone: got %t, want %t", got, tc.want)
			}
		})
	}
}
