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

// TestModeOptions holds the preview to what is done: the phase goes before the request in the first option exactly where
// Next writes it as the first step of mode CRR.
func TestModeOptions(t *testing.T) {
	const first = " with the phase before it"
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		target  func(*resolve.Target)
		cluster func(*plan.Snapshot)
		want    []string
	}{
		"a phase that goes before the request is no step of its own": {pod: pod(), want: []string{"CRR" + first, "Image"}},
		"without Kruise the phase is a step":                         {pod: pod(), cluster: withoutKruise, want: []string{"PodPhase", "Image"}},
		"where exit codes are respected no phase is written":         {pod: pod(), target: respect, want: []string{"CRR", "Image"}},
		"without the phase a request goes last":                      {pod: pod(), cluster: withoutPodPhase, want: []string{"Image", "CRR"}},
		"so does a declared one":                                     {pod: pod(), cluster: withoutPodPhase, target: mode(crr), want: []string{"Image", "CRR"}},
		"with a long grace period a request goes last":               {pod: pod(), cluster: grace(2 * time.Hour), want: []string{"Image", "CRR"}},
		"as a last resort the phase goes after the image":            {pod: pod(), cluster: lastResort, want: []string{"Image", "CRR" + first}},
		"a failed pod has its image swapped, and its phase last":     {pod: failed(), want: []string{"Image", "CRR", "PodPhase"}},
		"a failed pod with a declared request has that first":        {pod: failed(), target: mode(crr), want: []string{"CRR", "Image", "PodPhase"}},
		"a failed pod whose exit codes are respected has a request":  {pod: failed(), target: respect, want: []string{"CRR", "Image"}},
		"after mode Image the request has the phase before it":       {pod: pod(), target: mode(image), want: []string{"Image", "CRR" + first}},
		"a phase that was written already does not go before a request": {
			pod: pod(), target: mode(podPhase), want: []string{"PodPhase", "CRR", "Image"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := sidecar("proxy")
			if tc.target != nil {
				target = sidecar("proxy", tc.target)
			}
			snapshot := observed(tc.pod, targets(target))
			if tc.cluster != nil {
				tc.cluster(&snapshot)
			}
			var got []string
			options := plan.ModeOptions(snapshot, target)
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
