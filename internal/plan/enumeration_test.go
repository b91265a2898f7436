// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
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
//	pod       1 main in 6 states x 2 sidecars in 6 states x restartPolicy x phase
//	rules     container restart rules of the main and of the first sidecar, and a swapped image of that sidecar
//	place     real, daemonless or virtual node, with and without OpenKruise, with and without the phase; and, for pods without
//	          such rules, with the phase as the last resort, a grace period beyond the limit, or a kubelet that ignores phases
//	policy    mode, exit codes and fallback of the first sidecar, known and unknown; the second sidecar has mode Auto or Respect
//	image     covers the command of the first sidecar, or does not
//	past      no attempt, in a stable or an unstable pod, or one of fourteen histories, early or late
//
// All sidecar states are tried while the main is done, and only one while it is not: then no other state matters. One pod is a
// mirror pod.
func TestEveryState(t *testing.T) {
	t.Parallel()
	states := 0
	reasons := map[v1alpha1.Reason]int{}
	acted := 0
	for _, basePod := range pods() {
		knowing := basePod.DeepCopy()
		phaseKnown(&plan.Snapshot{Pod: knowing})
		for _, place := range places() {
			if place.plainPods && !isPlain(basePod) {
				continue
			}
			for _, policy := range policies() {
				for i, past := range pasts() {
					if s := (plan.Snapshot{Pod: basePod, Attempts: past.attempts}); isTerminal(basePod) && i > 0 && !hasPhase(s) {
						continue // the pod has finished; nothing else matters
					}
					if i > 3 && mayRun(basePod, "main") {
						continue // the operator waits; nothing else matters
					}
					pod := basePod
					if past.known {
						pod = knowing
					}
					s := plan.Snapshot{
						Pod: pod, View: resolve.View{Mains: []string{"main"}, Sidecars: policy},
						Node: place.node, Capabilities: place.capabilities, Attempts: past.attempts,
						UnchangedSince: done.Add(past.quiet), ContainersUnchangedSince: done.Add(past.quiet), StabilizationWindow: window,
						Kubelet: plan.Kubelet{IgnoresPhase: place.ignoresPhase},
					}
					now := done.Add(past.after)
					decision := plan.Next(s, now)
					states++
					reasons[decision.Reason]++
					if len(decision.Actions) > 0 {
						acted++
					}
					problem := checkInvariants(s, now, decision)
					if states%5 == 0 {
						problem += isDeterministic(s, now, decision)
					}
					if problem != "" {
						t.Fatalf("%s\nin state %d: %s\ndecision: %+v", problem, states, tell(s, past.after), briefly(decision))
					}
				}
			}
		}
	}
	t.Logf("%d states, %d of them with an action; reasons: %v", states, acted, reasons)
	if states < 100_000 {
		t.Errorf("only %d states", states)
	}
	for _, reason := range []v1alpha1.Reason{
		v1alpha1.ReasonMainContainersRunning, v1alpha1.ReasonTerminated, v1alpha1.ReasonTerminating, v1alpha1.ReasonFallback,
		v1alpha1.ReasonAttemptInProgress, v1alpha1.ReasonStuck, v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonSidecarStarting,
		v1alpha1.ReasonMirrorPod, v1alpha1.ReasonUnknownSetting,
		v1alpha1.ReasonStabilizing, v1alpha1.ReasonPodFinished, v1alpha1.ReasonExitCodesRespected, v1alpha1.ReasonCommandNotCovered,
	} {
		if reasons[reason] == 0 {
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
	static := observed(finishedMain(never, running("first").runs("/bin/sh", "-c"), running("second")), nil, mirror)
	pods := []*corev1.Pod{static.Pod}
	for _, policy := range []corev1.RestartPolicy{never, onFailure} {
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
			for i, main := range statesOf("main") {
				for j, first := range statesOf("first") {
					for k, second := range statesOf("second") {
						if mainDone := i >= 4; !mainDone && (j != 3 || k != 3) {
							continue
						}
						for r, apply := range rules {
							if r > 0 && (k != 3 && k != 4 || phase == corev1.PodFailed) {
								continue
							}
							main, first := apply(main, first)
							pod := newPod(policy, main, first.runs("/bin/sh", "-c"), second)
							pod.Status.Phase = phase
							pods = append(pods, pod)
						}
					}
				}
			}
		}
	}
	return pods
}

type place struct {
	node         plan.NodeKind
	capabilities plan.Capabilities
	// plainPods limits the pods to those without restart rules whose second sidecar runs.
	plainPods bool
	// ignoresPhase means that the kubelet is known to ignore phases.
	ignoresPhase bool
}

func isPlain(pod *corev1.Pod) bool {
	return status(pod, "second").State.Running != nil && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil || c.Image != ""
	})
}

func places() []place {
	const few = 10 * time.Second // less than the grace period of the pods
	return []place{
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true}, false, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), MaxGracePeriod: time.Hour}, false, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseDisabled), CRRServed: true}, false, false},
		{plan.NodeVirtual, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true}, false, false},
		{plan.NodeDaemonless, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true}, false, false},
		{plan.NodeNotRead, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true}, true, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true, NamespacesOnly: true}, true, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseLastResort), CRRServed: true}, true, false},
		{plan.NodeDaemonless, plan.Capabilities{EnabledModes: modes(plan.PodPhaseLastResort)}, true, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true, MaxGracePeriod: few}, true, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseLastResort), MaxGracePeriod: few}, true, false},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true}, true, true},
		{plan.NodeReal, plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), MaxGracePeriod: few}, true, true},
	}
}

// policies are the settings of both sidecars.
func policies() [][]resolve.Sidecar {
	var all [][]resolve.Sidecar
	for _, m := range []v1alpha1.Mode{v1alpha1.ModeAuto, crr, image, podPhase} {
		for _, codes := range []v1alpha1.ExitCodes{v1alpha1.ExitCodesIgnore, v1alpha1.ExitCodesRespect} {
			for _, fallback := range []v1alpha1.Fallback{v1alpha1.FallbackEnabled, v1alpha1.FallbackDisabled} {
				first := sidecar("first", mode(m), func(t *resolve.Sidecar) { t.ExitCodes, t.Fallback = codes, fallback })
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
	for _, unknown := range []resolve.Sidecar{
		sidecar("first", mode("Freeze")), sidecar("first", mode("Freeze"), noFallback), sidecar("first", mode(crr), unknownFallback),
		sidecar("first", unknownExitCodes), sidecar("first", mode(podPhase), byPolicy),
	} {
		all = append(all, sidecarsOf(unknown, sidecar("second")))
	}
	return all
}

// past holds the earlier attempts and the time of the decision.
type past struct {
	attempts     []plan.Attempt
	after, quiet time.Duration
	// known means that the kubelet has reported the pod's phase.
	known bool
}

// pasts are the histories: in progress, past the deadline, finished without effect, one on each sidecar, and cut off by a crash.
func pasts() []past {
	early, late := 10*time.Second, 10*minute
	return []past{
		{after: early, quiet: -time.Hour},
		{after: early, quiet: early},
		{attempts: []plan.Attempt{crrAttempt(0, "first", "second")}, after: early},
		{attempts: []plan.Attempt{crrAttempt(0, "first", "second")}, after: late},
		{attempts: []plan.Attempt{finished(crrAttempt(0, "first"), time.Second, "daemon has not responded")}, after: early},
		{attempts: []plan.Attempt{finished(crrAttempt(0, "first"), early-2*time.Second, "")}, after: early},
		{attempts: []plan.Attempt{swap("first")}, after: early},
		{attempts: []plan.Attempt{swap("first", "second")}, after: late},
		{attempts: []plan.Attempt{phaseWrite(0, podPhase)}, after: early},
		{attempts: []plan.Attempt{phaseWrite(2, podPhase)}, after: early},
		{attempts: []plan.Attempt{phaseWrite(0, crr)}, after: late},
		{attempts: []plan.Attempt{phaseWrite(0, crr), crrAttempt(0, "first")}, after: early},
		{attempts: []plan.Attempt{crrAttempt(0, "first"), crrAttempt(1, "second"), swap("first"), phaseWrite(1, podPhase)}, after: late},
		{attempts: []plan.Attempt{crrAttempt(0, "first"), at(crrAttempt(1, "first"), late-early), swap("first")}, after: late},
		{attempts: []plan.Attempt{phaseWrite(0, crr)}, after: 90 * time.Second},
		{attempts: []plan.Attempt{phaseWrite(0, crr)}, after: 90 * time.Second, known: true},
	}
}

// tell formats a state for people.
func tell(s plan.Snapshot, after time.Duration) string {
	text := fmt.Sprintf("%s phase=%s node=%s %+v after=%s denied=%v unreadable=%q ignores=%t\n",
		s.Pod.Spec.RestartPolicy, s.Pod.Status.Phase, s.Node, s.Capabilities, after, s.Denied, s.InvalidAnnotation, s.Kubelet.IgnoresPhase)
	for i, c := range s.Pod.Spec.Containers {
		st := s.Pod.Status.ContainerStatuses[i].State
		text += fmt.Sprintf("  %s running=%t waiting=%v exited=%v restartPolicy=%v rules=%v\n", c.Name, st.Running != nil,
			reasonOf(st), codeOf(st), c.RestartPolicy != nil, c.RestartPolicyRules)
	}
	for _, sidecar := range s.View.Sidecars {
		text += fmt.Sprintf("  sidecar %s %s %s fallback=%s paths=%q policy=%t\n",
			sidecar.Container, sidecar.Mode, sidecar.ExitCodes, sidecar.Fallback, sidecar.QuickExitPaths, sidecar.Policy != nil)
	}
	for _, a := range s.Attempts {
		text += fmt.Sprintf("  attempt %s#%d for %s at %s on %v finished=%v\n", a.Mode, a.Number, a.For, a.Started.Sub(done), a.RestartCounts, !a.Finished.IsZero())
	}
	return text
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
