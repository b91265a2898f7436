// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestMaxGracePeriod covers pods whose grace period exceeds the limit for mode PodPhase.
func TestMaxGracePeriod(t *testing.T) {
	long := grace(time.Hour + time.Second)
	year := grace(365 * 24 * time.Hour)
	two := func() *corev1.Pod { return finishedMain(never, running("logs"), running("proxy")) }
	const within = " within 1h0m31s"

	runScenarios(t, map[string]scenario{
		"a grace period of the limit is not beyond it": {
			observed(finishedMain(never), oneProxy(), grace(time.Hour)),
			0, terminating("PodPhase#0=Succeeded [proxy] for CRR within 1h0m30s"),
		},
		"no limit": {
			observed(finishedMain(never), oneProxy(), year, func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = 0 }),
			0, terminating("PodPhase#0=Succeeded [proxy] for CRR within 8760h0m30s"),
		},
		"a limit above the longest duration": {
			observed(finishedMain(never), oneProxy(noImage, noFallback), withoutKruise, func(s *plan.Snapshot) {
				s.Capabilities.MaxGracePeriod = 10000 * time.Hour
				*s.Pod.Spec.TerminationGracePeriodSeconds = 1 << 62
			}),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto swaps the image":                                  {observed(finishedMain(never), oneProxy(), long), 0, terminating("Image#0 [proxy]" + within)},
		"Auto swaps the image without Kruise":                   {observed(finishedMain(never), oneProxy(), long, withoutKruise), 0, terminating("Image#0 [proxy]" + within)},
		"Auto without an image creates a CRR without the phase": {observed(finishedMain(never), oneProxy(noImage), long), 0, terminating("CRR#0 [proxy]" + within)},
		"Auto under OnFailure creates a CRR without the phase":  {observed(finishedMain(onFailure), oneProxy(), long), 0, terminating("CRR#0 [proxy]" + within)},
		"Auto without Kruise and image is stuck":                {observed(finishedMain(never), oneProxy(noImage), long, withoutKruise), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"a phase Failed is not written either": {
			observed(newPod(never, exited("main", 1), running("proxy")), oneProxy(noImage), long, withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"the image is the last where exit codes are respected": {observed(finishedMain(never), oneProxy(respect), long), 0, terminating("CRR#0 [proxy]" + within)},
		"a declared CRR gives way to the image":                {observed(finishedMain(never), oneProxy(mode(crr)), long), 0, fallingBack("Image#0 [proxy]" + within)},
		"a declared CRR without fallback is used without the phase": {
			observed(finishedMain(never), oneProxy(mode(crr), noFallback), long),
			0, terminating("CRR#0 [proxy]" + within),
		},
		"a declared CRR is used when there is no image": {observed(finishedMain(never), oneProxy(mode(crr), noImage), long), 0, terminating("CRR#0 [proxy]" + within)},
		"a declared CRR is used when the image has failed": {
			observed(finishedMain(never), oneProxy(mode(crr)), long, attempted(swap("proxy"))),
			2 * time.Hour, fallingBack("CRR#0 [proxy]" + within),
		},
		"a declared PodPhase of a policy is used": {
			observed(finishedMain(never), oneProxy(mode(podPhase), byPolicy), year),
			0, terminating("PodPhase#0=Succeeded [proxy] within 8760h0m30s"),
		},
		"a declared PodPhase without a policy is not used": {
			observed(finishedMain(never), oneProxy(mode(podPhase), noFallback), year),
			0, stuck(v1alpha1.ReasonGracePeriodTooLong),
		},
		"a policy with mode Auto has no exemption": {
			observed(finishedMain(never), oneProxy(byPolicy, noImage), long, withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared PodPhase waits for a sidecar that is not exempt": {
			observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", mode(podPhase), byPolicy)), long),
			0, terminating("Image#0 [logs]" + within),
		},
		"a declared PodPhase waits for the CRR of one without an image": {
			observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long),
			0, terminating("CRR#0 [logs]" + within),
		},
		"a declared PodPhase names only the sidecars that declare it": {
			observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long, withoutKruise),
			0, brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoUsableMode, Actions: []string{"PodPhase#0=Succeeded [proxy]" + within}},
		},
		"an overwritten declared PodPhase is rewritten": {
			observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long, withoutKruise, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: time.Hour + 21*time.Second, Actions: []string{"PodPhase#1=Succeeded [proxy]" + within}},
		},
		"an overwritten phase stays after the limit is lowered": {
			observed(finishedMain(never), oneProxy(), long, attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(time.Hour + 21*time.Second),
		},
		"a CRR waits until the kubelet has seen the phase": {
			observed(finishedMain(never), oneProxy(), grace(2*time.Second), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase)),
				func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = time.Second }),
			minute, inProgress(minute),
		},
	})
}

// TestLastResort covers an operator that writes phases only if no image can be swapped.
func TestLastResort(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"Auto swaps the image before a CRR":            {observed(finishedMain(never), oneProxy(), lastResort), 0, terminating(swapOfProxy)},
		"Auto swaps the image under OnFailure as well": {observed(finishedMain(onFailure), oneProxy(), lastResort), 0, terminating(swapOfProxy)},
		"Auto swaps the image without Kruise":          {observed(finishedMain(never), oneProxy(), lastResort, withoutKruise), 0, terminating(swapOfProxy)},
		"Auto creates a CRR where no phase is needed":  {observed(finishedMain(never), oneProxy(respect), lastResort), 0, terminating(crrOfProxy)},
		"Auto writes the phase when there is no image": {observed(finishedMain(never), oneProxy(noImage), lastResort), 0, terminating(phaseBeforeCRR)},
		"Auto writes the phase when there is neither image nor Kruise": {
			observed(finishedMain(never), oneProxy(noImage), lastResort, withoutKruise),
			0, terminating(phaseOfProxy),
		},
		"Auto writes the phase when the swap has failed": {
			observed(finishedMain(never), oneProxy(), lastResort, attempted(swap("proxy"))),
			minute, fallingBack(phaseBeforeCRR),
		},
		"a declared CRR is used":                 {observed(finishedMain(never), oneProxy(mode(crr)), lastResort), 0, terminating(phaseBeforeCRR)},
		"a declared CRR falls back to the image": {observed(finishedMain(never), oneProxy(mode(crr)), lastResort, withoutKruise), 0, fallingBack(swapOfProxy)},
		"a declared PodPhase is used":            {observed(finishedMain(never), oneProxy(mode(podPhase)), lastResort), 0, terminating(phaseOfProxy)},
		"a declared PodPhase falls back to the image": {
			observed(finishedMain(never), oneProxy(mode(podPhase)), lastResort, attempted(phaseWrite(2, podPhase))),
			10 * time.Second, fallingBack(swapOfProxy),
		},
		"a long grace period leaves no phase": {
			observed(finishedMain(never), oneProxy(noImage), lastResort, grace(2*time.Hour), withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
	})
}

// TestPodPhaseDisabled covers an operator that writes no phases: exit codes count after its CRRs.
func TestPodPhaseDisabled(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"Auto swaps the image":                                 {observed(finishedMain(never), oneProxy(), withoutPodPhase), 0, terminating(swapOfProxy)},
		"Auto creates a CRR when there is no image":            {observed(finishedMain(never), oneProxy(noImage), withoutPodPhase), 0, terminating(crrOfProxy)},
		"Auto under OnFailure creates a CRR without the phase": {observed(finishedMain(onFailure), oneProxy(), withoutPodPhase), 0, terminating(crrOfProxy)},
		"a declared CRR gives way to the image":                {observed(finishedMain(never), oneProxy(mode(crr)), withoutPodPhase), 0, fallingBack(swapOfProxy)},
		"a declared CRR without fallback is used":              {observed(finishedMain(never), oneProxy(mode(crr), noFallback), withoutPodPhase), 0, terminating(crrOfProxy)},
		"a declared CRR with respected exit codes is used":     {observed(finishedMain(never), oneProxy(mode(crr), respect), withoutPodPhase), 0, terminating(crrOfProxy)},
		"an unknown value writes no phase": {
			observed(finishedMain(never), oneProxy(noImage), withoutKruise, func(s *plan.Snapshot) { s.Capabilities.PodPhase = "Sometimes" }),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
	})
}

// A declared CRR that the image replaces is reported as a substitution.
func TestImageBeforeCRRSubstitution(t *testing.T) {
	one := oneProxy(mode(crr))
	tests := map[string]struct {
		change func(*plan.Snapshot)
		want   []plan.Substitution
	}{
		"to a phase that is disabled": {withoutPodPhase, []plan.Substitution{
			{Container: "proxy", Wanted: crr, Used: image, Reason: v1alpha1.ReasonModeDisabled},
		}},
		"to a long grace period": {grace(2 * time.Hour), []plan.Substitution{
			{Container: "proxy", Wanted: crr, Used: image, Reason: v1alpha1.ReasonGracePeriodTooLong},
		}},
		"not to an overwritten phase": {attempted(phaseWrite(2, crr)), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := observed(finishedMain(never), one, test.change)
			decision := plan.Next(s, done.Add(10*time.Second))
			if diff := cmp.Diff(test.want, decision.Substitutions, cmpopts.IgnoreFields(plan.Substitution{}, "Message")); diff != "" {
				t.Errorf("Substitutions (-want +got):\n%s", diff)
			}
		})
	}
}
