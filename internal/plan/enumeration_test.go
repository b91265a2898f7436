// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestEveryState enumerates the states of a pod with a main container and two sidecars, and checks the package's invariants
// in each. The dimensions are:
//
//	pod     1 main in 6 states x 2 sidecars in 6 states x restartPolicy, restart rules of the main and of the first sidecar, and a
//	        swapped image of that sidecar
//	outcome the mark and the answer of the admission policy; for pods whose second sidecar runs, also none, an old one, one without
//	        an answer, the end in advance, an end by the phase, a phase of the kubelet's own, and disruptions
//	place   real, daemonless, virtual, unread or unknown node, with and without OpenKruise, and the operator's limits of mode PodPhase
//	policy  mode, exit codes and fallback of the first sidecar, known and unknown; the second sidecar has mode Auto or Respect
//	past    no attempt, or one of eight histories, early or late
//
// All sidecar states are tried while the main is done, and only one while it is not: then no other state matters.
func TestEveryState(t *testing.T) {
	t.Parallel()
	policies, places, pasts := policies(), places(), pasts()
	states, acted := 0, 0
	seen := map[v1alpha1.Reason]int{}
	for _, base := range pods() {
		for _, policy := range policies {
			for _, outcome := range outcomes(base, resolve.View{Mains: []string{"main"}, Sidecars: policy}) {
				pod := outcome.pod
				for _, place := range places {
					if place.few && !isPlain(base) {
						continue
					}
					for _, past := range pasts {
						if past.few && (outcome.few || mayRun(pod, "main")) {
							continue
						}
						s := plan.Snapshot{
							Pod: pod, View: resolve.View{Mains: []string{"main"}, Sidecars: policy}, Node: place.node, Capabilities: place.capabilities,
							Attempts: past.attempts, PhaseSince: done.Add(5 * time.Second), MarkedAt: done.Add(-minute),
						}
						now := done.Add(past.after)
						decision := plan.Next(s, now)
						states++
						seen[decision.Reason]++
						if len(decision.Writes) > 0 {
							acted++
						}
						problem := checkInvariants(s, now, decision)
						if states%50 == 0 {
							problem += isDeterministic(s, now, decision)
						}
						if problem != "" {
							t.Fatalf("%s\nin state %d: %s\ndecision: %+v", problem, states, tell(s, past.after), briefly(decision))
						}
					}
				}
			}
		}
	}
	t.Logf("%d states, %d of them with an action; reasons: %v", states, acted, seen)
	if states < 100_000 {
		t.Errorf("only %d states", states)
	}
	for _, reason := range []v1alpha1.Reason{
		v1alpha1.ReasonMirrorPod, v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodDisrupted, v1alpha1.ReasonPodFinished, v1alpha1.ReasonMarking,
		v1alpha1.ReasonMainContainersRunning, v1alpha1.ReasonNodeUnknown, v1alpha1.ReasonSidecarStarting, v1alpha1.ReasonTerminating,
		v1alpha1.ReasonFallback, v1alpha1.ReasonAttemptInProgress, v1alpha1.ReasonExitCodesRespected, v1alpha1.ReasonTerminated,
		v1alpha1.ReasonStuck, v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonUnknownSetting, v1alpha1.ReasonCommandNotCovered,
	} {
		if seen[reason] == 0 {
			t.Errorf("no state has reason %s: the enumeration misses a part of the decision", reason)
		}
	}
}

// statesOf are the states that one container may be in.
func statesOf(name string) []container {
	return []container{creating(name), unpullable(name), crashLooping(name), running(name), exited(name, 0), exited(name, 7)}
}

// pods are the pods, with the rules of their containers.
func pods() []*corev1.Pod {
	restartOn7 := func(c container, action corev1.ContainerRestartRuleAction) container {
		return c.restarting(corev1.ContainerRestartPolicyNever, rule(action, corev1.ContainerRestartRuleOnExitCodesOpIn, 7))
	}
	rules := []func(main, first container) (container, container){
		func(main, first container) (container, container) { return main, first },
		func(main, first container) (container, container) {
			return restartOn7(main, corev1.ContainerRestartRuleActionRestart), first
		},
		func(main, first container) (container, container) {
			return main, restartOn7(first, corev1.ContainerRestartRuleActionRestartAllContainers)
		},
		func(main, first container) (container, container) {
			return main.restarting(corev1.ContainerRestartPolicyNever), first.restarting(corev1.ContainerRestartPolicyAlways)
		},
		func(main, first container) (container, container) { return main, first.swapped() },
	}
	var pods []*corev1.Pod
	for _, policy := range []corev1.RestartPolicy{never, onFailure} {
		for i, main := range statesOf("main") {
			for j, first := range statesOf("first") {
				for k, second := range statesOf("second") {
					if mainDone := i >= 4; !mainDone && (j != 3 || k != 3) {
						continue
					}
					for r, apply := range rules {
						if r > 0 && k != 3 && k != 4 {
							continue
						}
						main, first := apply(main, first)
						pods = append(pods, newPod(policy, main, first.runs("/bin/sh", "-c"), second))
					}
				}
			}
		}
	}
	return pods
}

// outcome is a pod with what the operator, the admission policy, the kubelet and others have made of it.
type outcome struct {
	pod *corev1.Pod
	// few limits the histories of the pod.
	few bool
}

// outcomes share the containers of the pod.
func outcomes(base *corev1.Pod, view resolve.View) []outcome {
	answered := *base
	marked(&plan.Snapshot{Pod: &answered, View: view})
	all := []outcome{{&answered, false}}
	if status(base, "second").State.Running == nil {
		return all
	}
	add := func(few bool, changes ...func(*plan.Snapshot)) {
		pod := answered
		pod.Annotations = maps.Clone(answered.Annotations)
		for _, change := range changes {
			change(&plan.Snapshot{Pod: &pod})
		}
		all = append(all, outcome{&pod, few})
	}
	add(true, unmarked)
	add(true, undecided)
	add(true, ending(v1alpha1.EndPodPhase))
	add(true, ending(v1alpha1.EndPodPhase), undecided)
	if !isPlain(base) {
		return all
	}
	add(true, func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, own("main,second")) })
	add(true, beingDeleted)
	add(true, condition(corev1.DisruptionTarget))
	add(true, record(v1alpha1.MainsRunning))
	add(true, phase(corev1.PodSucceeded))
	add(true, mirror)
	switch end := status(base, "main").State.Terminated; {
	case end == nil:
	case end.ExitCode == 0:
		add(false, endedByPhase)
	default:
		add(false, failedByPhase)
		add(true, ending(v1alpha1.EndFailed))
	}
	return all
}

type place struct {
	node         plan.NodeKind
	capabilities plan.Capabilities
	// few limits the pods to those without restart rules whose second sidecar runs.
	few bool
}

func isPlain(pod *corev1.Pod) bool {
	return status(pod, "second").State.Running != nil && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil || c.Image != ""
	})
}

func places() []place {
	const few = 10 * time.Second // less than the grace period of the pods
	enabled, disabled, lastResort := modes(plan.PodPhaseEnabled), modes(plan.PodPhaseDisabled), modes(plan.PodPhaseLastResort)
	return []place{
		{plan.NodeReal, plan.Capabilities{EnabledModes: enabled, CRRServed: true}, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: enabled, MaxGracePeriod: time.Hour}, false},
		{plan.NodeVirtual, plan.Capabilities{EnabledModes: enabled, CRRServed: true}, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: disabled, CRRServed: true}, true},
		{plan.NodeDaemonless, plan.Capabilities{EnabledModes: enabled, CRRServed: true}, true},
		{plan.NodeNotRead, plan.Capabilities{EnabledModes: enabled, CRRServed: true}, true},
		{plan.NodeUnknown, plan.Capabilities{EnabledModes: enabled}, true},
		{plan.NodeReal, plan.Capabilities{EnabledModes: enabled, CRRServed: true, NamespacesOnly: true}, true},
		{plan.NodeReal, plan.Capabilities{EnabledModes: lastResort, CRRServed: true}, true},
		{plan.NodeDaemonless, plan.Capabilities{EnabledModes: lastResort}, true},
		{plan.NodeReal, plan.Capabilities{EnabledModes: enabled, MaxGracePeriod: few}, true},
	}
}

// policies are the settings of both sidecars.
func policies() [][]resolve.Sidecar {
	var all [][]resolve.Sidecar
	for _, m := range []v1alpha1.Mode{v1alpha1.ModeAuto, crr, image, podPhase} {
		for _, codes := range []v1alpha1.ExitCodePolicy{v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect} {
			for _, fallback := range []v1alpha1.Fallback{v1alpha1.FallbackEnabled, v1alpha1.FallbackDisabled} {
				if m == v1alpha1.ModeAuto && fallback == v1alpha1.FallbackDisabled {
					continue // Auto always falls back
				}
				first := sidecar("first", mode(m), func(t *resolve.Sidecar) { t.ExitCodePolicy, t.Fallback = codes, fallback })
				all = append(all, sidecarsOf(first, sidecar("second")))
				if m == v1alpha1.ModeAuto || m == image {
					uncovered := first
					uncovered.QuickExitPaths = quickexit.CoverageOf("/app/server")
					all = append(all, sidecarsOf(uncovered, sidecar("second")))
				}
				if fallback == v1alpha1.FallbackEnabled {
					all = append(all, sidecarsOf(first, sidecar("second", respect, noImage)))
				}
			}
		}
	}
	for _, other := range []resolve.Sidecar{
		sidecar("first", mode("Freeze")), sidecar("first", mode("Freeze"), noFallback), sidecar("first", mode(crr), unknownFallback),
		sidecar("first", unknownExitCodes), sidecar("first", mode(podPhase), drain(minute)),
	} {
		all = append(all, sidecarsOf(other, sidecar("second")))
	}
	return all
}

// past holds the earlier attempts and the time of the decision.
type past struct {
	attempts []plan.Attempt
	after    time.Duration
	// few leaves it out for many pods.
	few bool
}

// pasts are the histories: in progress, past the deadline, finished without effect, one on each sidecar, and cut off by a crash.
func pasts() []past {
	early, late := 10*time.Second, 10*minute
	return []past{
		{nil, early, false},
		{[]plan.Attempt{crrAttempt(1, "first", "second")}, early, true},
		{[]plan.Attempt{crrAttempt(1, "first", "second")}, late, false},
		{[]plan.Attempt{finished(crrAttempt(1, "first"), time.Second, "daemon has not responded")}, early, true},
		{[]plan.Attempt{finished(crrAttempt(1, "first"), early-2*time.Second, "")}, early, true},
		{[]plan.Attempt{swap("first")}, early, true},
		{[]plan.Attempt{swap("first", "second")}, late, true},
		{[]plan.Attempt{crrAttempt(1, "first"), crrAttempt(2, "second"), swap("first")}, late, true},
		{[]plan.Attempt{crrAttempt(1, "first"), at(crrAttempt(2, "first"), late-early), swap("first")}, late, true},
	}
}

// tell formats a state for people.
func tell(s plan.Snapshot, after time.Duration) string {
	pod := map[string]any{"metadata": s.Pod.ObjectMeta, "containers": s.Pod.Spec.Containers, "status": s.Pod.Status}
	s.Pod = nil
	text, err := json.Marshal(map[string]any{"pod": pod, "snapshot": s})
	return fmt.Sprintf("%s after %s (%v)", text, after, err)
}

func reasonOf(s corev1.ContainerState) string {
	if s.Waiting == nil {
		return ""
	}
	return s.Waiting.Reason
}

func codeOf(s corev1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return fmt.Sprint(s.Terminated.ExitCode)
}
