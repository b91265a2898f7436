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

// checkInvariants returns what is wrong with the decision, or nothing. It knows the kubelet's rules by itself and shares
// no code with the package.
func checkInvariants(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if slices.ContainsFunc(d.Actions, func(a plan.Action) bool { return a.ReleasePhase }) {
		return releasesOnlyALatePhase(s, now, d) + doesNotInsist(s, now, d)
	}
	for _, check := range []func(plan.Snapshot, time.Time, plan.Decision) string{
		saysWhy, actsOnlyWhenMainsAreDone, namesOnlyOpenSidecars, keepsOneLiveAttempt, writesTheOutcome,
		writesToAQuietPod, stopsNothingBehindTheKubeletsBack, writesPhasesWithinLimits, leavesNoExitCode, guessesNothing,
		doesNotInsist, wakesUp,
	} {
		if problem := check(s, now, d); problem != "" {
			return problem
		}
	}
	return ""
}

// saysWhy: every decision has a stage, a reason and a message.
func saysWhy(_ plan.Snapshot, _ time.Time, d plan.Decision) string {
	if d.Stage == "" || d.Reason == "" || d.Message == "" {
		return "a decision without stage, reason or message"
	}
	return ""
}

// releasesOnlyALatePhase: the guard is taken off a terminal phase that the operator wrote, while a container runs and when
// no attempt may still end it by that phase, and nothing else is done then. It is, whatever is declared.
func releasesOnlyALatePhase(s plan.Snapshot, now time.Time, d plan.Decision) string {
	late := slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { return a.Mode == podPhase && now.After(a.Started.Add(5*minute)) })
	runs := slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.State.Running != nil })
	if len(d.Actions) != 1 || !isTerminal(s.Pod) || !late || !runs || s.Pod.Annotations[v1alpha1.AnnotationPhaseGuard] == "" {
		return "the guard is taken off too early, or with something else"
	}
	return saysWhy(s, now, d)
}

// actsOnlyWhenMainsAreDone: nothing is done while a main container may run again, nor without a main container, nor to
// a pod that is none of the operator's business.
func actsOnlyWhenMainsAreDone(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	if len(d.Actions) == 0 {
		return ""
	}
	if len(s.View.Mains) == 0 {
		return "an action without a main container"
	}
	_, static := s.Pod.Annotations["kubernetes.io/config.mirror"]
	if s.Pod.Spec.RestartPolicy != never && s.Pod.Spec.RestartPolicy != onFailure || s.Pod.DeletionTimestamp != nil || static {
		return "an action on a pod that is to be left alone"
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

// namesOnlyOpenSidecars: no action names a main container, a sidecar that has ended or one that still drains, and a
// request names no container that has never started.
func namesOnlyOpenSidecars(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if d.Stage == plan.StageTerminated && len(d.Actions) > 0 {
		return "an action when every sidecar has ended"
	}
	for _, action := range d.Actions {
		if len(action.Containers) == 0 || !slices.IsSorted(action.Containers) || len(slices.Compact(slices.Clone(action.Containers))) != len(action.Containers) {
			return fmt.Sprintf("an action on no container, or out of order: %v", action.Containers)
		}
		for _, name := range action.Containers {
			i := slices.IndexFunc(s.View.Targets, func(t resolve.Target) bool { return t.Container == name })
			switch {
			case i < 0:
				return fmt.Sprintf("an action names %s, which is no sidecar", name)
			case s.View.Targets[i].Drain > 0 && now.Before(d.MainsDone.Add(s.View.Targets[i].Drain)):
				return fmt.Sprintf("an action names %s, which drains", name)
			case !mayRun(s.Pod, name) && !justSwapped(s, name):
				return fmt.Sprintf("an action names %s, which has ended", name)
			case action.Mode == crr && status(s.Pod, name).ContainerID == "":
				return fmt.Sprintf("a request names %s, which has never started", name)
			case action.Mode == image && hasQuickExitImage(s, name) && !recordsSwap(s, name) &&
				(s.Node == plan.NodeVirtual || s.View.Targets[i].Mode == image):
				return fmt.Sprintf("a swap names %s, which has been swapped", name)
			case action.Mode == image && action.Images[name] != s.View.Targets[i].Image, action.Mode == image && action.Images[name] == "":
				return fmt.Sprintf("a swap gives %s the image %q", name, action.Images[name])
			case action.Mode == image && !runsQuickExit(s.Pod, s.View.Targets[i]):
				return fmt.Sprintf("a swap gives %s an image that does not have its command", name)
			}
		}
	}
	return ""
}

// runsQuickExit says whether the image has the command, of the few that containers and images of these tests have.
func runsQuickExit(pod *corev1.Pod, target resolve.Target) bool {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == target.Container })
	has := strings.Split(target.QuickExitPaths.String(), ",")
	switch command := pod.Spec.Containers[i].Command; {
	case len(command) == 0, slices.Contains(has, "*"), slices.Contains(has, command[0]):
		return true
	default:
		return command[0] == "/bin/sh" && slices.Contains(has, "default")
	}
}

// keepsOneLiveAttempt: no action begins an attempt on a container while another one may still end it. The phase that
// goes before a request is one attempt with it, and so is a phase that is written again.
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
					return fmt.Sprintf("request %d is removed while %s may run", spent.Number, name)
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

// writesTheOutcome: the phase is written once the mains are done and every respected sidecar has ended, is that of their
// exit codes, and is never written over a terminal one, on a virtual node or against the operator's flag.
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
		for _, target := range s.View.Targets {
			if target.ExitCodes != v1alpha1.ExitCodesIgnore {
				if mayRun(s.Pod, target.Container) {
					return fmt.Sprintf("a phase while %s, which is respected, may run", target.Container)
				}
				counted = append(counted, target.Container)
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
		case s.Node == plan.NodeVirtual, s.Capabilities.PodPhase != plan.PodPhaseEnabled && s.Capabilities.PodPhase != plan.PodPhaseLastResort:
			return "a phase where it cannot or may not be written"
		}
	}
	for _, action := range d.Actions {
		if action.Mode == crr && (s.Node == plan.NodeVirtual || s.Node == plan.NodeDaemonless || !s.Capabilities.CRR) {
			return "a request where Kruise is not"
		}
	}
	return ""
}

// writesToAQuietPod: the phase is written to a pod that has not changed for the settle period, or whose containers have not
// for twenty. The clock of the pod's node has no say.
func writesToAQuietPod(s plan.Snapshot, now time.Time, d plan.Decision) string {
	quiet := !now.Before(s.QuietSince.Add(s.SettlePeriod)) || !now.Before(s.ContainersSince.Add(20*s.SettlePeriod))
	if !quiet && slices.ContainsFunc(d.Actions, func(a plan.Action) bool { return a.Phase != "" }) {
		return "the phase is written to a pod that is not quiet"
	}
	return ""
}

// stopsNothingBehindTheKubeletsBack: a sidecar whose exit code is not to count is stopped by a request only after the
// phase was written, where it may be, and as long as that stands only when the kubelet has said that it knows of it, or was
// given time.
func stopsNothingBehindTheKubeletsBack(s plan.Snapshot, now time.Time, d plan.Decision) string {
	known := slices.ContainsFunc(s.Pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "Ready" && c.Reason == "PodCompleted" })
	late := slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { return a.Mode == podPhase && !now.Before(a.Started.Add(2*minute)) })
	for _, action := range d.Actions {
		for _, target := range s.View.Targets {
			switch {
			case hasFailed(s), action.Mode != crr, target.ExitCodes != v1alpha1.ExitCodesIgnore, !slices.Contains(action.Containers, target.Container):
			case !hasPhase(s) && mayHavePhase(s, target):
				return fmt.Sprintf("a request for %s, whose exit code would count", target.Container)
			case hasPhase(s) && isTerminal(s.Pod) && !known && !late:
				return fmt.Sprintf("a request for %s, and the kubelet may not know of the phase", target.Container)
			}
		}
	}
	return ""
}

// writesPhasesWithinLimits: beyond the longest grace period a phase is written only for sidecars whose policy declares that
// mode. Where it is the last resort it is written only for sidecars that declare it, as a part of CRR too, or cannot be
// swapped.
func writesPhasesWithinLimits(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, target := range s.View.Targets {
			switch {
			case action.Phase == "" || !slices.Contains(action.Containers, target.Container):
			case !mayHavePhase(s, target):
				return fmt.Sprintf("the phase is written for %s, whose pod has too long a grace period", target.Container)
			case s.Capabilities.PodPhase == plan.PodPhaseLastResort && !hasPhase(s) && target.Mode != podPhase && target.Mode != crr && canSwap(s, target):
				return fmt.Sprintf("the phase is written for %s, which can be swapped", target.Container)
			}
		}
	}
	return ""
}

// leavesNoExitCode: where nothing keeps the exit code of an ignored sidecar from counting, it is swapped, if it can be,
// before a request stops it. Beside a main container that has failed a declared CRR is used all the same.
func leavesNoExitCode(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, target := range s.View.Targets {
			stands := !mayRun(withExit(s.Pod, target.Container, 143), target.Container)
			hidden := !hasFailed(s) && (isTerminal(s.Pod) || !hasPhase(s) && mayHavePhase(s, target))
			declared := target.Mode == crr && (hasFailed(s) || target.Fallback != v1alpha1.FallbackEnabled)
			if action.Mode == crr && slices.Contains(action.Containers, target.Container) && target.ExitCodes == v1alpha1.ExitCodesIgnore &&
				stands && !hidden && !declared && canSwap(s, target) {
				return fmt.Sprintf("a request for %s, which can be swapped, and whose exit code would count", target.Container)
			}
		}
	}
	return ""
}

// guessesNothing: a value that this version does not know leads to nothing that may be other than what it means.
func guessesNothing(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		for _, target := range s.View.Targets {
			known := target.Fallback == v1alpha1.FallbackEnabled || target.Fallback == v1alpha1.FallbackDisabled
			switch {
			case !slices.Contains([]v1alpha1.Mode{crr, image, podPhase}, action.Mode):
				return fmt.Sprintf("an action of mode %s", action.Mode)
			case !slices.Contains(action.Containers, target.Container):
			case target.ExitCodes != v1alpha1.ExitCodesIgnore && target.ExitCodes != v1alpha1.ExitCodesRespect:
				return fmt.Sprintf("an action on %s, and nobody knows whether its exit code counts", target.Container)
			case !known && target.Mode != v1alpha1.ModeAuto && action.Mode != target.Mode && (target.Mode != crr || action.Mode != podPhase):
				return fmt.Sprintf("a fallback for %s, which nobody knows to be wanted", target.Container)
			}
		}
	}
	return ""
}

// hasFailed says whether the pod has failed by the exit codes that count.
func hasFailed(s plan.Snapshot) bool {
	return slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		counts := !slices.ContainsFunc(s.View.Targets, func(t resolve.Target) bool { return t.Container == st.Name && t.ExitCodes == v1alpha1.ExitCodesIgnore })
		return counts && st.State.Terminated != nil && st.State.Terminated.ExitCode != 0 && !mayRun(s.Pod, st.Name)
	})
}

// mayHavePhase says whether the operator's flags let it write the phase in order to end the target.
func mayHavePhase(s plan.Snapshot, target resolve.Target) bool {
	c := s.Capabilities
	short := c.MaxGracePeriod == 0 || *s.Pod.Spec.TerminationGracePeriodSeconds <= int64(c.MaxGracePeriod/time.Second)
	return (c.PodPhase == plan.PodPhaseEnabled || c.PodPhase == plan.PodPhaseLastResort) && (short || target.Mode == podPhase && target.Policy != nil)
}

// canSwap says whether mode Image can be used for the target, and was not.
func canSwap(s plan.Snapshot, target resolve.Target) bool {
	i := slices.IndexFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == target.Container })
	restartsAll := slices.ContainsFunc(s.Pod.Spec.Containers[i].RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return r.Action == "RestartAllContainers" })
	_, refused := s.Refused[image]
	forbidden := s.Capabilities.Images.Check(target.Image) != nil && target.ImageSource != resolve.SourceEnvironment && target.ImageSource != resolve.SourceOperator
	return target.Image != "" && !s.Capabilities.ImageDisabled && !isTerminal(s.Pod) && !restartsAll && !refused && !forbidden &&
		runsQuickExit(s.Pod, target) && !recordsSwap(s, target.Container) && !hasQuickExitImage(s, target.Container)
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

// doesNotInsist: what was refused a moment ago is left out, and without its records nothing is done.
func doesNotInsist(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Actions {
		if _, refused := s.Refused[action.Mode]; refused || s.Unreadable != "" {
			return fmt.Sprintf("an action of mode %s, which was refused, or without records", action.Mode)
		}
	}
	return ""
}

// wakesUp: a decision that waits for time to pass says when to look again. What else is waited for changes the pod, its
// node, a policy or Kruise, and each brings the pod back.
func wakesUp(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if d.RequeueAfter < 0 {
		return "a time in the past"
	}
	waitsForTime := d.Reason == v1alpha1.ReasonDraining || d.Reason == v1alpha1.ReasonSettling || d.Reason == v1alpha1.ReasonAttemptInProgress
	if waitsForTime && d.RequeueAfter == 0 {
		return "nothing will wake the pod"
	}
	if d.Stage == plan.StageTerminating && d.Reason != v1alpha1.ReasonNodeUnknown && len(d.Actions) == 0 && d.RequeueAfter == 0 {
		for _, target := range s.View.Targets {
			for _, attempt := range s.Attempts {
				if mayRun(s.Pod, target.Container) && isLive(s, attempt, target.Container, now) {
					return "nothing will wake the pod at the deadline of an attempt"
				}
			}
		}
	}
	return ""
}

// isDeterministic: the same snapshot and time give the same decision. It is not among checkInvariants, for it decides a
// second time.
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
	code := st.State.Terminated.ExitCode
	policy := string(pod.Spec.RestartPolicy)
	for _, c := range pod.Spec.Containers {
		if c.Name != name || c.RestartPolicy == nil {
			continue
		}
		policy = string(*c.RestartPolicy)
		for _, r := range c.RestartPolicyRules {
			if slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	return policy == "Always" || policy == "OnFailure" && code != 0
}

// hasQuickExitImage says whether the container has its quick-exit image.
func hasQuickExitImage(s plan.Snapshot, name string) bool {
	c := slices.IndexFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	t := slices.IndexFunc(s.View.Targets, func(t resolve.Target) bool { return t.Container == name })
	return s.Pod.Spec.Containers[c].Image != "" && s.Pod.Spec.Containers[c].Image == s.View.Targets[t].Image
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

// isLive says whether the attempt may still end the container: it is within its time, its mechanism is not through, and
// it has not been seen to fail.
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
