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
	two := func() *corev1.Pod { return newPod(never, exited("main", 0), running("logs"), running("proxy")) }
	const within = " within 1h0m31s"

	runScenarios(t, map[string]scenario{
		"a grace period of the limit is not beyond it": {
			snapshot: observed(finishedMain(never), oneProxy(), grace(time.Hour)),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1h0m30s"),
		},
		"no limit": {
			snapshot: observed(finishedMain(never), oneProxy(), year, func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = 0 }),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 8760h0m30s"),
		},
		"a limit above the longest duration": {
			snapshot: observed(finishedMain(never), oneProxy(noImage, noFallback), withoutKruise, func(s *plan.Snapshot) {
				s.Capabilities.MaxGracePeriod = 10000 * time.Hour
				*s.Pod.Spec.TerminationGracePeriodSeconds = 1 << 62
			}),
			want: stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto swaps the image": {
			snapshot: observed(finishedMain(never), oneProxy(), long),
			want:     terminating("Image#0 [proxy]" + within),
		},
		"Auto swaps the image without Kruise": {
			snapshot: observed(finishedMain(never), oneProxy(), long, withoutKruise),
			want:     terminating("Image#0 [proxy]" + within),
		},
		"Auto without an image creates a CRR without the phase": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), long),
			want:     terminating("CRR#0 [proxy]" + within),
		},
		"Auto under OnFailure creates a CRR without the phase": {
			snapshot: observed(finishedMain(onFailure), oneProxy(), long),
			want:     terminating("CRR#0 [proxy]" + within),
		},
		"Auto without Kruise and image is stuck": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), long, withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a phase Failed is not written either": {
			snapshot: observed(newPod(never, exited("main", 1), running("proxy")), oneProxy(noImage), long, withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"the image is the last where exit codes are respected": {
			snapshot: observed(finishedMain(never), oneProxy(respect), long),
			want:     terminating("CRR#0 [proxy]" + within),
		},
		"a declared CRR gives way to the image": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr)), long),
			want:     fallingBack("Image#0 [proxy]" + within),
		},
		"a declared CRR without fallback is used without the phase": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr), noFallback), long),
			want:     terminating("CRR#0 [proxy]" + within),
		},
		"a declared CRR is used when there is no image": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr), noImage), long),
			want:     terminating("CRR#0 [proxy]" + within),
		},
		"a declared CRR is used when the image has failed": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr)), long, attempted(swap("proxy"))),
			after:    2 * time.Hour,
			want:     fallingBack("CRR#0 [proxy]" + within),
		},
		"a declared PodPhase of a policy is used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(podPhase), byPolicy), year),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 8760h0m30s"),
		},
		"a declared PodPhase without a policy is not used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(podPhase), noFallback), year),
			want:     stuck(v1alpha1.ReasonGracePeriodTooLong),
		},
		"a policy with mode Auto has no exemption": {
			snapshot: observed(finishedMain(never), oneProxy(byPolicy, noImage), long, withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared PodPhase waits for a sidecar that is not exempt": {
			snapshot: observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", mode(podPhase), byPolicy)), long),
			want:     terminating("Image#0 [logs]" + within),
		},
		"a declared PodPhase waits for the CRR of one without an image": {
			snapshot: observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long),
			want:     terminating("CRR#0 [logs]" + within),
		},
		"a declared PodPhase names only the sidecars that declare it": {
			snapshot: observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long, withoutKruise),
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoUsableMode,
				Actions: []string{"PodPhase#0=Succeeded [proxy]" + within}},
		},
		"an overwritten declared PodPhase is rewritten": {
			snapshot: observed(two(), sidecarsOf(sidecar("logs", noImage), sidecar("proxy", mode(podPhase), byPolicy)), long, withoutKruise,
				attempted(phaseWrite(0, podPhase))),
			after: 10 * time.Second,
			want: brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Requeue: time.Hour + 21*time.Second,
				Actions: []string{"PodPhase#1=Succeeded [proxy]" + within}},
		},
		"an overwritten phase stays after the limit is lowered": {
			snapshot: observed(finishedMain(never), oneProxy(), long, attempted(phaseWrite(0, podPhase))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: time.Hour + 21*time.Second},
		},
		"a CRR waits until the kubelet has seen the phase": {
			snapshot: observed(finishedMain(never), oneProxy(), grace(2*time.Second), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase)),
				func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = time.Second }),
			after: minute,
			want:  brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
	})
}

// TestLastResort covers an operator that writes phases only if no image can be swapped.
func TestLastResort(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"Auto swaps the image before a CRR": {
			snapshot: observed(finishedMain(never), oneProxy(), lastResort),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image under OnFailure as well": {
			snapshot: observed(finishedMain(onFailure), oneProxy(), lastResort),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto swaps the image without Kruise": {
			snapshot: observed(finishedMain(never), oneProxy(), lastResort, withoutKruise),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR where no phase is needed": {
			snapshot: observed(finishedMain(never), oneProxy(respect), lastResort),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto writes the phase when there is no image": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), lastResort),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"Auto writes the phase when there is neither image nor Kruise": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), lastResort, withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto writes the phase when the swap has failed": {
			snapshot: observed(finishedMain(never), oneProxy(), lastResort, attempted(swap("proxy"))),
			after:    minute,
			want:     fallingBack("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"a declared CRR is used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr)), lastResort),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"a declared CRR falls back to the image": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr)), lastResort, withoutKruise),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a declared PodPhase is used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(podPhase)), lastResort),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared PodPhase falls back to the image": {
			snapshot: observed(finishedMain(never), oneProxy(mode(podPhase)), lastResort, attempted(phaseWrite(2, podPhase))),
			after:    10 * time.Second,
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a long grace period leaves no phase": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), lastResort, grace(2*time.Hour), withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
	})
}

// TestPodPhaseDisabled covers an operator that writes no phases: exit codes count after its CRRs.
func TestPodPhaseDisabled(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"Auto swaps the image": {
			snapshot: observed(finishedMain(never), oneProxy(), withoutPodPhase),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto creates a CRR when there is no image": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), withoutPodPhase),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto under OnFailure creates a CRR without the phase": {
			snapshot: observed(finishedMain(onFailure), oneProxy(), withoutPodPhase),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a declared CRR gives way to the image": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr)), withoutPodPhase),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a declared CRR without fallback is used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr), noFallback), withoutPodPhase),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a declared CRR with respected exit codes is used": {
			snapshot: observed(finishedMain(never), oneProxy(mode(crr), respect), withoutPodPhase),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"an unknown value writes no phase": {
			snapshot: observed(finishedMain(never), oneProxy(noImage), withoutKruise, func(s *plan.Snapshot) { s.Capabilities.PodPhase = "Sometimes" }),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
	})
}

// A declared CRR that the image replaces is reported as a substitution.
func TestImageBeforeCRRSubstitution(t *testing.T) {
	one := sidecarsOf(sidecar("proxy", mode(crr)))
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
			s := observed(newPod(never, exited("main", 0), running("proxy")), one, test.change)
			decision := plan.Next(s, done.Add(10*time.Second))
			if diff := cmp.Diff(test.want, decision.Substitutions, cmpopts.IgnoreFields(plan.Substitution{}, "Message")); diff != "" {
				t.Errorf("Substitutions (-want +got):\n%s", diff)
			}
		})
	}
}
