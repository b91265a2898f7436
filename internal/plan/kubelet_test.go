// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// ignoringKubelet is a node whose kubelet is known to ignore phases.
func ignoringKubelet(s *plan.Snapshot) {
	s.Kubelet = plan.Kubelet{Version: "v1.40.0", IgnoresPhase: true}
}

// TestKubeletIgnoresPhase covers the first attempt where the kubelet is known to ignore phases.
func TestKubeletIgnoresPhase(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"Auto swaps the image":                                   {observed(finishedMain(never), oneProxy(), ignoringKubelet, withoutKruise), 0, terminating(swapOfProxy)},
		"Auto, Kruise: swaps the image":                          {observed(finishedMain(never), oneProxy(), ignoringKubelet), 0, terminating(swapOfProxy)},
		"Auto, Kruise, OnFailure: a CRR without the phase":       {observed(finishedMain(onFailure), oneProxy(), ignoringKubelet), 0, terminating(crrOfProxy)},
		"Auto, Kruise, Respect: a CRR":                           {observed(finishedMain(never), oneProxy(respect), ignoringKubelet), 0, terminating(crrOfProxy)},
		"Auto, Kruise, no image: the Job completes by the phase": {observed(finishedMain(never), oneProxy(noImage), ignoringKubelet), 0, terminating(phaseBeforeCRR)},
		"Auto without another mode writes the phase":             {observed(finishedMain(never), oneProxy(noImage), ignoringKubelet, withoutKruise), 0, terminating(phaseOfProxy)},
		"Auto writes the phase when the swap has failed": {
			observed(finishedMain(onFailure), oneProxy(), ignoringKubelet, withoutKruise, attempted(swap("proxy"))),
			minute, fallingBack(phaseOfProxy),
		},
		"a declared PodPhase gives way to the image": {
			observed(finishedMain(never), oneProxy(mode(podPhase)), ignoringKubelet, withoutKruise),
			0, fallingBack(swapOfProxy),
		},
		"a declared PodPhase gives way to a CRR": {observed(finishedMain(onFailure), oneProxy(mode(podPhase), byPolicy), ignoringKubelet), 0, fallingBack(crrOfProxy)},
		"a declared PodPhase without fallback is used": {
			observed(finishedMain(never), oneProxy(mode(podPhase), noFallback), ignoringKubelet),
			0, terminating(phaseOfProxy),
		},
		"a declared PodPhase without another mode is used": {
			observed(finishedMain(never), oneProxy(mode(podPhase), noImage), ignoringKubelet, withoutKruise),
			0, terminating(phaseOfProxy),
		},
		"a declared CRR gives way to the image": {observed(finishedMain(never), oneProxy(mode(crr)), ignoringKubelet), 0, fallingBack(swapOfProxy)},
		"a declared CRR without fallback writes the phase": {
			observed(finishedMain(never), oneProxy(mode(crr), noFallback), ignoringKubelet),
			0, terminating(phaseBeforeCRR),
		},
		"a declared CRR under OnFailure is used without the phase": {observed(finishedMain(onFailure), oneProxy(mode(crr)), ignoringKubelet), 0, terminating(crrOfProxy)},
		"a declared CRR in a failed pod is used": {
			observed(newPod(never, exited("main", 3), running("proxy")), oneProxy(mode(crr)), ignoringKubelet),
			0, terminating(crrOfProxy),
		},
		"waits for a phase that the kubelet is acting on": {
			observed(finishedMain(never), oneProxy(), ignoringKubelet, phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
	})
}

// The policy of a declared mode that gives way reports why.
func TestKubeletIgnoresPhaseSubstitution(t *testing.T) {
	for name, test := range map[string]struct {
		declared v1alpha1.Mode
		changes  []func(*plan.Snapshot)
		want     []plan.Substitution
	}{
		"PodPhase": {podPhase, nil, []plan.Substitution{
			{Container: "proxy", Wanted: podPhase, Used: image, Reason: v1alpha1.ReasonPhaseIgnoredByKubelet,
				Message: "mode PodPhase cannot be used for container proxy: the kubelet of node worker ignores written phases, as others of version v1.40.0 did; declare mode Auto, Image or CRR"},
		}},
		"CRR": {crr, nil, []plan.Substitution{
			{Container: "proxy", Wanted: crr, Used: image, Reason: v1alpha1.ReasonPhaseIgnoredByKubelet,
				Message: "mode CRR cannot be used for container proxy: mode CRR writes the pod's phase first, so that the exit code of container proxy does not count, " +
					"but the kubelet of node worker ignores written phases, as others of version v1.40.0 did; declare mode Auto, Image or CRR"},
		}},
		"Image":                  {image, nil, nil},
		"PodPhase, the only one": {podPhase, []func(*plan.Snapshot){withoutKruise, withoutImages}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			changes := append([]func(*plan.Snapshot){ignoringKubelet}, test.changes...)
			s := observed(finishedMain(never), oneProxy(mode(test.declared)), changes...)
			s.Pod.Spec.NodeName = "worker"
			if diff := cmp.Diff(test.want, plan.Next(s, done).Substitutions, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Substitutions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPhaseTrial covers what a pod shows about its kubelet after this process has written its phase at done.
func TestPhaseTrial(t *testing.T) {
	type seen struct {
		after  time.Duration
		change func(*plan.Snapshot)
	}
	ready := plan.Kubelet{Version: "v1.40.0", ReadySince: done.Add(-time.Hour)}
	with := func(changes ...func(*plan.Snapshot)) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) {
			for _, change := range changes {
				change(s)
			}
		}
	}
	proxy := func(c container) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) { s.Pod.Status.ContainerStatuses[1] = c.status }
	}
	recorded := func(number int) func(*plan.Snapshot) { return attempted(phaseWrite(number, podPhase)) }
	kept := with(recorded(0), phase(corev1.PodSucceeded))
	reverted := recorded(0)
	swapEnded := with(proxy(exited("proxy", 0).restarted(1)), attempted(swap("proxy")))
	notReady := func(s *plan.Snapshot) { s.Kubelet.ReadySince = time.Time{} }
	readyAgain := func(s *plan.Snapshot) { s.Kubelet.ReadySince = done.Add(minute) }
	upgraded := func(s *plan.Snapshot) { s.Kubelet.Version = "v1.41.0" }
	deleted := func(s *plan.Snapshot) { s.Pod.DeletionTimestamp = &metav1.Time{Time: done} }

	for name, test := range map[string]struct {
		versions []seen
		want     []plan.PhaseEvidence
		over     bool
	}{
		"the kubelet reports the phase and ends the sidecar": {
			versions: []seen{{time.Second, with(kept, phaseKnown)}, {3 * time.Second, with(kept, phaseKnown, proxy(exited("proxy", 0)))}},
			want:     []plan.PhaseEvidence{plan.PhaseHonored}, over: true,
		},
		"an exit code does not count": {
			versions: []seen{{3 * time.Second, with(kept, phaseKnown, proxy(exited("proxy", 143)))}},
			want:     []plan.PhaseEvidence{plan.PhaseHonored}, over: true,
		},
		"the sidecar ends by itself": {
			versions: []seen{{3 * time.Second, with(kept, phaseKnown, proxy(exited("proxy", 0)))}}, over: true,
		},
		"the sidecar ends too late": {
			versions: []seen{{time.Second, with(kept, phaseKnown)}, {2 * minute, with(kept, phaseKnown, proxy(exited("proxy", 0)))}}, over: true,
		},
		"a request ends the sidecar": {
			versions: []seen{{time.Second, with(kept, phaseKnown)}, {minute, with(kept, attempted(crrAttempt(0, "proxy")), proxy(exited("proxy", 0)))}}, over: true,
		},
		"a container that cannot be stopped": {
			versions: []seen{{time.Second, with(kept, phaseKnown)}, {time.Hour, with(kept, phaseKnown)}},
		},
		"phase Failed, kept": {
			versions: []seen{{time.Second, with(recorded(0), phase(corev1.PodFailed))}, {time.Hour, with(recorded(0), phase(corev1.PodFailed))},
				{time.Hour, with(recorded(0), phase(corev1.PodFailed), proxy(exited("proxy", 1)))}}, over: true,
		},
		"the kubelet does not report the phase": {
			versions: []seen{{minute, kept}, {2 * minute, kept}, {3 * minute, kept}},
			want:     []plan.PhaseEvidence{plan.PhaseUnreported},
		},
		"the node is not ready": {
			versions: []seen{{3 * minute, with(kept, notReady)}, {4 * minute, with(kept, readyAgain)}},
		},
		"the phase is reverted for good, and the image swapped": {
			versions: []seen{{6 * minute, reverted}, {7 * minute, with(reverted, swapEnded)}},
			want:     []plan.PhaseEvidence{plan.PhaseIgnored}, over: true,
		},
		"the swap ends the pod": {
			versions: []seen{{6 * minute, reverted}, {7 * minute, with(kept, phaseKnown, swapEnded)}},
			want:     []plan.PhaseEvidence{plan.PhaseIgnored}, over: true,
		},
		"the phase is reverted for good, and no container starts": {
			versions: []seen{{6 * minute, reverted}, {7 * minute, reverted}, {8 * minute, with(kept, proxy(exited("proxy", 0)))}}, over: true,
		},
		"the phase is reverted by an update in flight": {
			versions: []seen{{time.Second, reverted}, {10 * time.Second, with(reverted, proxy(running("proxy").restarted(1)))}},
		},
		"a container restarts before the phase is reverted": {
			versions: []seen{{6 * minute, with(reverted, proxy(running("proxy").restarted(3)))}, {7 * minute, with(reverted, proxy(running("proxy").restarted(3)))}},
		},
		"the cache lacks the write": {
			versions: []seen{{6 * minute, with()}, {7 * minute, swapEnded}},
		},
		"the pod is deleted": {
			versions: []seen{{6 * minute, reverted}, {7 * minute, with(reverted, deleted, swapEnded)}}, over: true,
		},
		"the kubelet is upgraded": {
			versions: []seen{{6 * minute, reverted}, {7 * minute, with(reverted, upgraded, swapEnded)}}, over: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			trial := plan.NewPhaseTrial(nil, plan.Action{Mode: podPhase, Phase: corev1.PodSucceeded, Timeout: minute}, ready, done)
			var got []plan.PhaseEvidence
			over := false
			for _, version := range test.versions {
				if over {
					t.Fatal("the trial was over too early")
				}
				s := observed(finishedMain(never), oneProxy(),
					func(s *plan.Snapshot) { s.Kubelet = ready }, version.change)
				var evidence plan.PhaseEvidence
				if evidence, over = trial.See(s, done.Add(version.after)); evidence != "" {
					got = append(got, evidence)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || over != test.over {
				t.Errorf("over: %t, want %t; evidence (-want +got):\n%s", over, test.over, diff)
			}
		})
	}
}

// Three reverted phases are evidence however soon they follow each other.
func TestPhaseTrialOfThreeReversals(t *testing.T) {
	kubelet := plan.Kubelet{Version: "v1.40.0"}
	var trial *plan.PhaseTrial
	see := func(number int, after time.Duration, c container, changes ...func(*plan.Snapshot)) plan.PhaseEvidence {
		changes = append(changes, func(s *plan.Snapshot) { s.Kubelet = kubelet }, attempted(phaseWrite(number, podPhase)))
		evidence, _ := trial.See(observed(finishedMain(never, c), nil, changes...), done.Add(after))
		return evidence
	}
	for number := range 3 {
		at := time.Duration(number) * 5 * time.Second
		trial = plan.NewPhaseTrial(trial, plan.Action{Mode: podPhase, Attempt: number}, kubelet, done.Add(at))
		if evidence := see(number, at+2*time.Second, running("proxy").restarted(int32(number))); evidence != "" {
			t.Errorf("after write %d: %s", number, evidence)
		}
	}
	if other := plan.NewPhaseTrial(trial, plan.Action{Mode: image}, kubelet, done); other != trial {
		t.Error("a swap begins another trial")
	}
	if released := plan.NewPhaseTrial(trial, plan.Action{Mode: podPhase, ReleasePhase: true}, kubelet, done); released != trial {
		t.Error("the release of the guard begins another trial")
	}
	if evidence := see(2, 15*time.Second, exited("proxy", 0).restarted(3), attempted(swap("proxy"))); evidence != plan.PhaseIgnored {
		t.Errorf("after the swap: evidence %q", evidence)
	}
}
