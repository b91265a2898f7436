// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// checkInvariants returns the first invariant that the decision breaks, or nothing. It shares no code with
// the package.
func checkInvariants(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if slices.ContainsFunc(d.Actions, func(a plan.Action) bool { return a.ReleasePhase }) {
		return releasesOnlyALatePhase(s, now, d) + skipsDeniedModes(s, now, d)
	}
	for _, check := range []func(plan.Snapshot, time.Time, plan.Decision) string{
		givesReason, actsOnlyWhenMainsAreDone, namesOnlyOpenSidecars, keepsOneLiveAttempt, writesTheOutcome,
		writesToAStablePod, waitsForKubeletBeforeCRR, writesPhasesWithinLimits, writesIgnoredPhasesLast, leavesNoIgnoredExitCode, skipsUnknownSettings,
		skipsDeniedModes, requeues,
	} {
		if problem := check(s, now, d); problem != "" {
			return problem
		}
	}
	return ""
}

// givesReason: every decision has a stage, a reason and a message.
func givesReason(_ plan.Snapshot, _ time.Time, d plan.Decision) string {
	if d.Stage == "" || d.Reason == "" || d.Message == "" {
		return "a decision without stage, reason or message"
	}
	return ""
}

// releasesOnlyALatePhase: the operator releases only a terminal phase that it wrote, after the deadline of every attempt by
// that phase, and only while a container still runs. The release is the only action, whatever the policies declare.
func releasesOnlyALatePhase(s plan.Snapshot, now time.Time, d plan.Decision) string {
	late := slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { return a.Mode == podPhase && now.After(a.Started.Add(5*minute)) })
	runs := slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.State.Running != nil })
	if len(d.Actions) != 1 || !isTerminal(s.Pod) || !late || !runs || s.Pod.Annotations[v1alpha1.AnnotationPhaseGuard] == "" {
		return "the guard is taken off too early, or with something else"
	}
	return givesReason(s, now, d)
}

// actsOnlyWhenMainsAreDone: no action while a main container may run again, in a pod without a main container, or on a pod
// that the operator must ignore.
func actsOnlyWhenMainsAreDone(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	if len(d.Actions) == 0 {
		return ""
	}
	if len(s.View.Mains) == 0 {
		return "an action without a main container"
	}
	_, static := s.Pod.Annotations["kubernetes.io/config.mirror"]
	if s.Pod.Spec.RestartPolicy != never && s.Pod.Spec.RestartPolicy != onFailure || s.Pod.DeletionTimestamp != nil || static {
		return "an action on a pod that the operator must ignore"
	}
	if s.Node == plan.NodeUnknown {
		return "an action on an unknown node"
	}
	for _, name := range s.View.Mains {
		if mayRun(s.Pod, name) {
			return fmt.Sprintf("an action while main container %s may run", name)
		}
	}
	for _, condition := range s.Pod.Status.Conditions {
		if condition.Type == corev1.AllContainersRestarting && condition.Status == corev1.ConditionTrue {
			return "an action while all containers are about to restart"
		}
	}
	return ""
}

// namesOnlyOpenSidecars: no action names a main container, a sidecar that has ended, or one that still drains. A CRR names no
// container that has never started.
func namesOnlyOpenSidecars(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if d.Stage == plan.StageTerminated && len(d.Actions) > 0 {
		return "an action when every sidecar has ended"
	}
	for _, action := range d.Actions {
		if len(action.Containers) == 0 || !slices.IsSorted(action.Containers) || len(slices.Compact(slices.Clone(action.Containers))) != len(action.Containers) {
			return fmt.Sprintf("an action on no container, or out of order: %v", action.Containers)
		}
		for _, name := range action.Containers {
			i := slices.IndexFunc(s.View.Sidecars, func(t resolve.Sidecar) bool { return t.Container == name })
			switch {
			case i < 0:
				return fmt.Sprintf("an action names %s, which is no sidecar", name)
			case s.View.Sidecars[i].Drain > 0 && now.Before(d.MainsDone.Add(s.View.Sidecars[i].Drain)):
				return fmt.Sprintf("an action names %s, which drains", name)
			case !mayRun(s.Pod, name) && !justSwapped(s, name):
				return fmt.Sprintf("an action names %s, which has ended", name)
			case action.Mode == crr && status(s.Pod, name).ContainerID == "":
				return fmt.Sprintf("a CRR names %s, which has never started", name)
			case action.Mode == image && hasQuickExitImage(s, name) && !recordsSwap(s, name) &&
				(s.Node == plan.NodeVirtual || s.View.Sidecars[i].Mode == image):
				return fmt.Sprintf("a swap names %s, which has been swapped", name)
			case action.Mode == image && action.Images[name] != s.View.Sidecars[i].Image, action.Mode == image && action.Images[name] == "":
				return fmt.Sprintf("a swap gives %s the image %q", name, action.Images[name])
			case action.Mode == image && !runsQuickExit(s.Pod, s.View.Sidecars[i]):
				return fmt.Sprintf("a swap gives %s an image that does not have its command", name)
			}
		}
	}
	return ""
}

// runsQuickExit says whether the image covers the command. It knows only the commands and images of these tests.
func runsQuickExit(pod *corev1.Pod, sidecar resolve.Sidecar) bool {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == sidecar.Container })
	has := strings.Split(sidecar.QuickExitPaths.String(), ",")
	switch command := pod.Spec.Containers[i].Command; {
	case len(command) == 0, slices.Contains(has, "*"), slices.Contains(has, command[0]):
		return true
	default:
		return command[0] == "/bin/sh" && slices.Contains(has, "default")
	}
}

// keepsOneLiveAttempt: no action begins an attempt on a container while another attempt may still end it. A CRR and its phase
// are one attempt, and so is a rewritten phase.
func keepsOneLiveAttempt(s plan.Snapshot, now time.Time, d plan.Decision) string {
	named := map[string]plan.Action{}
	for _, action := range d.Actions {
		superseded := func(a plan.Attempt) bool {
			return slices.ContainsFunc(action.Supersedes, func(spent plan.Attempt) bool { return spent.Number == a.Number && spent.UID == a.UID })
		}
		if action.Attempt < 0 || slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool {
			return a.Mode == action.Mode && a.Number >= action.Attempt && !superseded(a)
		}) {
			return fmt.Sprintf("attempt %s#%d exists", action.Mode, action.Attempt)
		}
		for _, spent := range action.Supersedes {
			for name := range spent.RestartCounts {
				if mayRun(s.Pod, name) {
					return fmt.Sprintf("CRR %d is removed while %s may run", spent.Number, name)
				}
			}
		}
		for _, name := range action.Containers {
			if first, twice := named[name]; twice && first.For != action.For {
				return fmt.Sprintf("two actions name %s", name)
			}
			named[name] = action
			for _, attempt := range s.Attempts {
				rewrite := action.Mode == podPhase && hasPhase(s)
				if !rewrite && isLive(s, attempt, name, now) {
					return fmt.Sprintf("%s#%d on %s while %s#%d is live", action.Mode, action.Attempt, name, attempt.Mode, attempt.Number)
				}
			}
		}
	}
	return ""
}

// writesTheOutcome: the phase is written only after the mains are done and every respected sidecar has ended. Their exit codes
// determine it. It never replaces a terminal phase, and is never written on a virtual node or against the operator's flag.
func writesTheOutcome(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		if action.Mode != podPhase {
			if action.Phase != "" {
				return "a phase in another mode"
			}
			continue
		}
		want := corev1.PodSucceeded
		counted := slices.Clone(s.View.Mains)
		for _, sidecar := range s.View.Sidecars {
			if sidecar.ExitCodes != v1alpha1.ExitCodesIgnore {
				if mayRun(s.Pod, sidecar.Container) {
					return fmt.Sprintf("a phase while %s, which is respected, may run", sidecar.Container)
				}
				counted = append(counted, sidecar.Container)
			}
		}
		for _, name := range counted {
			if status(s.Pod, name).State.Terminated.ExitCode != 0 {
				want = corev1.PodFailed
			}
		}
		switch {
		case action.Phase != want:
			return fmt.Sprintf("phase %s where the outcome is %s", action.Phase, want)
		case isTerminal(s.Pod):
			return "a phase over a terminal one"
		case s.Node == plan.NodeVirtual, s.Node == plan.NodeNotRead, s.Capabilities.PodPhase != plan.PodPhaseEnabled && s.Capabilities.PodPhase != plan.PodPhaseLastResort:
			return "a phase on a node that is or may be virtual, or although PodPhase is disabled"
		}
	}
	for _, action := range d.Actions {
		if action.Mode == crr && (s.Node != plan.NodeReal || !s.Capabilities.CRR || !s.Capabilities.CRRServed || s.Capabilities.NamespacesOnly) {
			return "a CRR without Kruise"
		}
	}
	return ""
}

// writesToAStablePod: the phase is written only if the pod has not changed for the stabilization window, or its containers have
// not changed for twenty windows. After a phase was reverted, the window is that without the phase guard. The clock of the pod's node does not matter.
// If the operator's clock was set back, a change may lie in the future. No pod waits for that.
func writesToAStablePod(s plan.Snapshot, now time.Time, d plan.Decision) string {
	window := s.StabilizationWindow
	if plan.PhaseReverted(s.Pod, s.Attempts) >= 0 {
		window = max(window, plan.UnguardedWindow)
	}
	quiet := !now.Before(s.UnchangedSince.Add(window)) || !now.Before(s.ContainersUnchangedSince.Add(20*window)) || s.ContainersUnchangedSince.After(now)
	if !quiet && slices.ContainsFunc(d.Actions, func(a plan.Action) bool { return a.Phase != "" }) {
		return "the phase is written to a pod that is not stable"
	}
	return ""
}

// waitsForKubeletBeforeCRR: before a CRR stops a sidecar with ignored exit codes, the operator writes the phase if it may. While
// that phase stands, the CRR waits until the kubelet has reported it, or two minutes have passed.
func waitsForKubeletBeforeCRR(s plan.Snapshot, now time.Time, d plan.Decision) string {
	known := slices.ContainsFunc(s.Pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "Ready" && c.Reason == "PodCompleted" })
	late := slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { return a.Mode == podPhase && !now.Before(a.Started.Add(2*minute)) })
	for _, action := range d.Actions {
		for _, sidecar := range s.View.Sidecars {
			switch {
			case hasFailed(s), action.Mode != crr, sidecar.ExitCodes != v1alpha1.ExitCodesIgnore, !slices.Contains(action.Containers, sidecar.Container):
			case !hasPhase(s) && mayHavePhase(s, sidecar) && !restartsUnderCRR(s, sidecar):
				return fmt.Sprintf("a CRR for %s, whose exit code would count", sidecar.Container)
			case hasPhase(s) && isTerminal(s.Pod) && !known && !late:
				return fmt.Sprintf("a CRR for %s, although the kubelet may not have seen the phase", sidecar.Container)
			}
		}
	}
	return ""
}

// restartsUnderCRR says whether the kubelet ignores phases and restarts the sidecar that a CRR stops, so that no phase hides the exit.
func restartsUnderCRR(s plan.Snapshot, sidecar resolve.Sidecar) bool {
	return s.Kubelet.IgnoresPhase && mayRun(withExit(s.Pod, sidecar.Container, 143), sidecar.Container)
}

// writesIgnoredPhasesLast: where the kubelet ignores phases, a phase is written only for a sidecar that cannot be swapped, or
// without fallback.
func writesIgnoredPhasesLast(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, sidecar := range s.View.Sidecars {
			if s.Kubelet.IgnoresPhase && action.Phase != "" && !hasPhase(s) && slices.Contains(action.Containers, sidecar.Container) &&
				sidecar.Fallback == v1alpha1.FallbackEnabled && canSwap(s, sidecar) {
				return fmt.Sprintf("a phase for %s, which can be swapped, although the kubelet ignores it", sidecar.Container)
			}
		}
	}
	return ""
}

// writesPhasesWithinLimits: beyond the longest grace period, a phase is written only for sidecars whose policy declares PodPhase.
// With PodPhase as the last resort, it is written only for sidecars that declare PodPhase or CRR, or that cannot be swapped.
func writesPhasesWithinLimits(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, sidecar := range s.View.Sidecars {
			switch {
			case action.Phase == "" || !slices.Contains(action.Containers, sidecar.Container):
			case !mayHavePhase(s, sidecar):
				return fmt.Sprintf("the phase is written for %s, whose pod has too long a grace period", sidecar.Container)
			case s.Capabilities.PodPhase == plan.PodPhaseLastResort && !hasPhase(s) && sidecar.Mode != podPhase && sidecar.Mode != crr && canSwap(s, sidecar):
				return fmt.Sprintf("the phase is written for %s, which can be swapped", sidecar.Container)
			}
		}
	}
	return ""
}

// leavesNoIgnoredExitCode: if the ignored exit code of a sidecar would count after a CRR, its image is swapped first if possible.
// The exception is a declared CRR after a main container has failed.
func leavesNoIgnoredExitCode(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, sidecar := range s.View.Sidecars {
			stands := !mayRun(withExit(s.Pod, sidecar.Container, 143), sidecar.Container)
			hidden := !hasFailed(s) && (isTerminal(s.Pod) || !hasPhase(s) && mayHavePhase(s, sidecar))
			declared := sidecar.Mode == crr && (hasFailed(s) || sidecar.Fallback != v1alpha1.FallbackEnabled)
			if action.Mode == crr && slices.Contains(action.Containers, sidecar.Container) && sidecar.ExitCodes == v1alpha1.ExitCodesIgnore &&
				stands && !hidden && !declared && canSwap(s, sidecar) {
				return fmt.Sprintf("a CRR for %s, which can be swapped, and whose exit code would count", sidecar.Container)
			}
		}
	}
	return ""
}

// skipsUnknownSettings: no action may contradict a setting whose value this version does not know.
func skipsUnknownSettings(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, sidecar := range s.View.Sidecars {
			known := sidecar.Fallback == v1alpha1.FallbackEnabled || sidecar.Fallback == v1alpha1.FallbackDisabled
			switch {
			case !slices.Contains([]v1alpha1.Mode{crr, image, podPhase}, action.Mode):
				return fmt.Sprintf("an action of mode %s", action.Mode)
			case !slices.Contains(action.Containers, sidecar.Container):
			case sidecar.ExitCodes != v1alpha1.ExitCodesIgnore && sidecar.ExitCodes != v1alpha1.ExitCodesRespect:
				return fmt.Sprintf("an action on %s, whose exitCodes are unknown", sidecar.Container)
			case !known && sidecar.Mode != v1alpha1.ModeAuto && action.Mode != sidecar.Mode && (sidecar.Mode != crr || action.Mode != podPhase):
				return fmt.Sprintf("a fallback for %s, whose fallback setting is unknown", sidecar.Container)
			}
		}
	}
	return ""
}

// hasFailed says whether the pod has failed by the exit codes that count.
func hasFailed(s plan.Snapshot) bool {
	return slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		counts := !slices.ContainsFunc(s.View.Sidecars, func(t resolve.Sidecar) bool { return t.Container == st.Name && t.ExitCodes == v1alpha1.ExitCodesIgnore })
		return counts && st.State.Terminated != nil && st.State.Terminated.ExitCode != 0 && !mayRun(s.Pod, st.Name)
	})
}

// mayHavePhase says whether the operator's flags let it write the phase in order to end the sidecar.
func mayHavePhase(s plan.Snapshot, sidecar resolve.Sidecar) bool {
	c := s.Capabilities
	short := c.MaxGracePeriod == 0 || *s.Pod.Spec.TerminationGracePeriodSeconds <= int64(c.MaxGracePeriod/time.Second)
	return (c.PodPhase == plan.PodPhaseEnabled || c.PodPhase == plan.PodPhaseLastResort) && (short || sidecar.Mode == podPhase && sidecar.Policy != nil)
}

// canSwap says whether mode Image can be used for the sidecar, and was not.
func canSwap(s plan.Snapshot, sidecar resolve.Sidecar) bool {
	i := slices.IndexFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == sidecar.Container })
	restartsAll := slices.ContainsFunc(s.Pod.Spec.Containers[i].RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return r.Action == "RestartAllContainers" })
	_, denied := s.Denied[image]
	forbidden := s.Capabilities.Images.Check(sidecar.Image) != nil && sidecar.ImageSource != resolve.SourceOperator
	return sidecar.Image != "" && s.Capabilities.Image && !isTerminal(s.Pod) && !restartsAll && !denied && !forbidden &&
		runsQuickExit(s.Pod, sidecar) && !recordsSwap(s, sidecar.Container) && !hasQuickExitImage(s, sidecar.Container)
}

// withExit returns the pod with the container ended by the exit code.
func withExit(pod *corev1.Pod, name string, code int32) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Status.ContainerStatuses {
		if st := &pod.Status.ContainerStatuses[i]; st.Name == name {
			st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
		}
	}
	return pod
}

// skipsDeniedModes: no action uses a mode whose last write was denied, and there is no action if the records are corrupt.
func skipsDeniedModes(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		if _, denied := s.Denied[action.Mode]; denied || s.InvalidAnnotation != "" {
			return fmt.Sprintf("an action of mode %s, which was denied or has corrupt records", action.Mode)
		}
	}
	return ""
}

// requeues: a decision that waits for time to pass has a requeue delay. Other decisions wait for a change of the pod, its node,
// a policy or OpenKruise, and such a change enqueues the pod.
func requeues(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if d.RequeueAfter < 0 {
		return "a time in the past"
	}
	waitsForTime := d.Reason == v1alpha1.ReasonDraining || d.Reason == v1alpha1.ReasonStabilizing || d.Reason == v1alpha1.ReasonAttemptInProgress
	if waitsForTime && d.RequeueAfter == 0 {
		return "nothing will wake the pod"
	}
	if d.Stage == plan.StageTerminating && d.Reason != v1alpha1.ReasonNodeUnknown && len(d.Actions) == 0 && d.RequeueAfter == 0 {
		for _, sidecar := range s.View.Sidecars {
			for _, attempt := range s.Attempts {
				if mayRun(s.Pod, sidecar.Container) && isLive(s, attempt, sidecar.Container, now) {
					return "nothing will wake the pod at the deadline of an attempt"
				}
			}
		}
	}
	return ""
}

// isDeterministic: the same snapshot and time give the same decision. It is not part of checkInvariants because it calls Next
// a second time.
func isDeterministic(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if again := plan.Next(s, now); again.Stage != d.Stage || again.Reason != d.Reason || again.Message != d.Message ||
		again.RequeueAfter != d.RequeueAfter || fmt.Sprint(again.Actions) != fmt.Sprint(d.Actions) {
		return "another decision the second time: " + cmp.Diff(d, again)
	}
	return ""
}

func status(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func hasPhase(s plan.Snapshot) bool {
	return slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { return a.Mode == podPhase })
}

// mayRun says whether the container runs or may be started, by the kubelet's rules.
func mayRun(pod *corev1.Pod, name string) bool {
	st := status(pod, name)
	if isTerminal(pod) {
		return st.State.Running != nil
	}
	if st.State.Terminated == nil {
		return true
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	return restartsAfter(pod.Spec.RestartPolicy, &pod.Spec.Containers[i], st.State.Terminated.ExitCode)
}

// restartsAfter says whether the kubelet restarts a regular container after this exit code. Rules count only with a restartPolicy
// of the container, and those with unknown actions count too.
func restartsAfter(policy corev1.RestartPolicy, container *corev1.Container, code int32) bool {
	if container.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*container.RestartPolicy)
		for _, r := range container.RestartPolicyRules {
			if r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	return policy == corev1.RestartPolicyAlways || policy == onFailure && code != 0
}

// hasQuickExitImage says whether the container's image is its quick-exit image.
func hasQuickExitImage(s plan.Snapshot, name string) bool {
	c := slices.IndexFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	t := slices.IndexFunc(s.View.Sidecars, func(t resolve.Sidecar) bool { return t.Container == name })
	return s.Pod.Spec.Containers[c].Image != "" && s.Pod.Spec.Containers[c].Image == s.View.Sidecars[t].Image
}

func recordsSwap(s plan.Snapshot, name string) bool {
	return slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { _, ok := a.RestartCounts[name]; return ok && a.Mode == image })
}

// justSwapped says whether the kubelet may still start the container for its new image.
func justSwapped(s plan.Snapshot, name string) bool {
	if hasQuickExitImage(s, name) && !recordsSwap(s, name) {
		return true
	}
	return slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool {
		before, ok := a.RestartCounts[name]
		return ok && a.Mode == image && status(s.Pod, name).RestartCount <= before
	})
}

// isLive says whether the attempt may still end the container: its deadline has not passed, its mechanism has not finished,
// and it has not failed visibly.
func isLive(s plan.Snapshot, a plan.Attempt, name string, now time.Time) bool {
	before, covers := a.RestartCounts[name]
	if a.Mode == podPhase {
		return now.Before(a.Started.Add(minute)) && (isTerminal(s.Pod) || a.Number < 2)
	}
	cameBack := a.Mode == crr && status(s.Pod, name).RestartCount > before
	through := !a.Finished.IsZero() && !now.Before(a.Finished.Add(5*time.Second))
	serial := max(len(a.RestartCounts), 1)
	return covers && !cameBack && !through && now.Before(a.Started.Add(time.Duration(serial)*30*time.Second+30*time.Second))
}
