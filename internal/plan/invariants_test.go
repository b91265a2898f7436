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

// invariant returns why the decision breaks it, or nothing.
type invariant func(plan.Snapshot, time.Time, plan.Decision) string

// checkInvariants returns the first invariant that the decision breaks, or nothing. It shares no code with the package.
func checkInvariants(s plan.Snapshot, now time.Time, d plan.Decision) string {
	for _, check := range []invariant{
		givesReason, actsOnlyWhenMainsAreDone, namesOnlyOpenSidecars, keepsOneLiveAttempt, marksOnlyWhatItMay, marksInAdvanceOnly, marksStoppedOnly, recordsOnlySuccess,
		endsByTheOutcome, usesModesWithinLimits, leavesNoIgnoredExitCode, skipsUnknownSettings, skipsDeniedModes, keepsOrder, requeues,
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

// actsOnlyWhenMainsAreDone: no action while a main container may run again, in a pod without a main container, or on a pod
// that the operator must ignore.
func actsOnlyWhenMainsAreDone(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	mayRunAgain := func(name string) bool { return mayRun(s.Pod, name) }
	switch {
	case len(d.Ends()) == 0:
	case len(s.View.Mains) == 0, mustIgnore(s.Pod), s.Pod.DeletionTimestamp != nil, !isTerminal(s.Pod) && isDisturbed(s.Pod):
		return "an action on a pod that the operator must ignore"
	case s.Node == plan.NodeUnknown:
		return "an action on an unknown node"
	case slices.ContainsFunc(s.View.Mains, mayRunAgain), hasCondition(s.Pod, corev1.AllContainersRestarting):
		return "an action while a main container may run"
	}
	return ""
}

// mustIgnore says whether the operator must not write to the pod at all.
func mustIgnore(pod *corev1.Pod) bool {
	_, static := pod.Annotations["kubernetes.io/config.mirror"]
	return static || pod.Spec.RestartPolicy != never && pod.Spec.RestartPolicy != onFailure
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// isDisturbed says whether somebody has begun to end the pod.
func isDisturbed(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Reason != "" || hasCondition(pod, corev1.DisruptionTarget)
}

// namesOnlyOpenSidecars: no action names a main container, a sidecar that has ended, or one that still drains. A CRR names no
// container that has never started.
func namesOnlyOpenSidecars(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if d.Stage == plan.StageTerminated && len(d.Ends()) > 0 {
		return "an action when every sidecar has ended"
	}
	for _, action := range d.Ends() {
		names := action.Containers
		if len(names) == 0 || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			return fmt.Sprintf("an action on no container, or out of order: %v", names)
		}
		if slices.ContainsFunc(names, func(name string) bool { return s.View.Sidecar(name) == nil }) {
			return fmt.Sprintf("an action on what is no sidecar: %v", names)
		}
	}
	return eachSidecar(s, d, func(action plan.Write, sidecar resolve.Sidecar) string {
		name := sidecar.Container
		switch {
		case drains(s, now, d, sidecar):
			return "it drains"
		case !mayRun(s.Pod, name) && !justSwapped(s, name):
			return "it has ended"
		case action.Mode == crr && status(s.Pod, name).ContainerID == "":
			return "it has never started"
		case action.Mode != image:
			return ""
		case hasQuickExitImage(s, name) && !recordsSwap(s, name) && (s.Node == plan.NodeVirtual || sidecar.Mode == image):
			return "it has been swapped"
		case action.Images[name] != sidecar.Image || action.Images[name] == "":
			return fmt.Sprintf("it gets the image %q", action.Images[name])
		case !runsQuickExit(s.Pod, sidecar):
			return "the image does not have its command"
		case sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore && sidecar.Mode != image:
			return "its exit code counts"
		}
		return ""
	})
}

func drains(s plan.Snapshot, now time.Time, d plan.Decision, sidecar resolve.Sidecar) bool {
	since := d.MainsDone
	if !s.DrainsSince.IsZero() {
		since = s.DrainsSince
	}
	return sidecar.Drain > 0 && now.Before(since.Add(sidecar.Drain))
}

// runsQuickExit says whether the image covers the command. It knows only the commands and images of these tests.
func runsQuickExit(pod *corev1.Pod, sidecar resolve.Sidecar) bool {
	has := strings.Split(sidecar.QuickExitPaths.String(), ",")
	switch command := specOf(pod, sidecar.Container).Command; {
	case len(command) == 0, slices.Contains(has, "*"), slices.Contains(has, command[0]):
		return true
	default:
		return command[0] == "/bin/sh" && slices.Contains(has, "default")
	}
}

// keepsOneLiveAttempt: no action begins an attempt on a container while another attempt may still end it. A mark and an action are
// never part of one decision.
func keepsOneLiveAttempt(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if mark := markOf(d); mark != nil && len(d.Writes) > 1 && !permitsExits(mark.End) {
		return "a mark together with another write"
	}
	named := map[string]bool{}
	for _, action := range d.Ends() {
		for _, a := range s.Attempts {
			spent := slices.ContainsFunc(action.Supersedes, func(spent plan.Attempt) bool { return spent.Number == a.Number && spent.UID == a.UID })
			last := a.Number == plan.MaxNumber && a.Number > action.Attempt // the numbers have begun again
			if a.Mode == action.Mode && a.Number >= action.Attempt && !spent && !last {
				return fmt.Sprintf("attempt %s#%d exists", action.Mode, action.Attempt)
			}
		}
		for _, spent := range action.Supersedes {
			for name := range spent.RestartCounts {
				if mayRun(s.Pod, name) {
					return fmt.Sprintf("CRR %d is removed while %s may run", spent.Number, name)
				}
			}
		}
	}
	return eachSidecar(s, d, func(_ plan.Write, sidecar resolve.Sidecar) string {
		if named[sidecar.Container] {
			return "it is named twice"
		}
		named[sidecar.Container] = true
		if slices.ContainsFunc(attemptsOf(s, d), func(a plan.Attempt) bool { return isLive(s, a, sidecar.Container, now) }) {
			return "an attempt is live"
		}
		return ""
	})
}

// marksOf are all marks of a decision.
func marksOf(d plan.Decision) []plan.Mark {
	var all []plan.Mark
	for _, write := range d.Writes {
		if write.Mark != nil {
			all = append(all, *write.Mark)
		}
	}
	return all
}

// marksOnlyWhatItMay: a mark lists exactly the sidecars whose exit codes do not count. It is written to no pod that the operator must
// ignore, that has a terminal phase, whose marks were denied, or that has no node. A mark of its own is never written for a
// prediction, before its time, or after the record, except once OpenKruise has stopped the sidecars. An empty mark is taken back from a pod
// without a sidecar or a main container.
func marksOnlyWhatItMay(s plan.Snapshot, now time.Time, d plan.Decision) string {
	marks, mark := marksOf(d), markOf(d)
	_, denied := s.Denied[podPhase]
	undeclared := len(s.View.Sidecars) == 0 || len(s.View.Mains) == 0
	forbidden := mustIgnore(s.Pod) || isTerminal(s.Pod) || denied || s.Pod.Spec.NodeName == ""
	ignored := ignoredBy(s.View)
	for _, name := range plan.IgnoredExitCodes(s.Pod) {
		if s.JobUnreadable && slices.Contains(s.View.Mains, name) {
			ignored = append(ignored, name) // it may be injected
		}
	}
	slices.Sort(ignored)
	if isRecorded(s.Pod) {
		ignored = plan.IgnoredExitCodes(s.Pod)
	}
	needless := mark != nil && (s.AssumeMarked || isRecorded(s.Pod) && mark.End != v1alpha1.EndCRR && !permitsExits(mark.End) && mark.Record == "" || now.Before(s.MarkAfter))
	switch {
	case len(marks) > 0 && forbidden, needless:
		return "a mark of a pod that must not be marked"
	case undeclared && !isRecorded(s.Pod):
		if len(marks) > 0 && (len(d.Ends()) > 0 || !isMarked(s.Pod) || !cmp.Equal(*mark, plan.Mark{Record: mark.Record})) {
			return "a pod without a sidecar or a main container is marked"
		}
	case slices.ContainsFunc(marks, func(m plan.Mark) bool { return !slices.Equal(m.IgnoredExitCodes, ignored) }):
		return "a mark lists other containers"
	}
	return ""
}

// marksInAdvanceOnly: a mark of its own announces the phase only while a main container runs and none has failed, and only if the
// phase can end every sidecar at once. Later it keeps the end, or none while a sidecar drains. It never writes phase Failed. It permits the
// end of a sidecar that was restarted only if the phase can end it, and of one that waits only if in addition none drains.
func marksInAdvanceOnly(s plan.Snapshot, now time.Time, d plan.Decision) string {
	cannotEnd := func(sidecar resolve.Sidecar) bool {
		return sidecar.Drain > 0 || sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore || !mayEndByPhase(s, sidecar) ||
			sidecar.Mode != podPhase && sidecar.Mode != v1alpha1.ModeAuto && sidecar.Fallback != v1alpha1.FallbackEnabled
	}
	current := ownValue(s.Pod, v1alpha1.AnnotationEnd)
	if current != v1alpha1.EndPodPhase && !permitsExits(current) {
		current = ""
	}
	mark, over := markOf(d), !d.MainsDone.IsZero() || hasFailed(s)
	draining := func(sidecar resolve.Sidecar) bool { return !d.MainsDone.IsZero() && drains(s, now, d, sidecar) }
	runsAndDrains := func(sidecar resolve.Sidecar) bool { return draining(sidecar) && mayRun(s.Pod, sidecar.Container) }
	switch {
	case len(s.View.Sidecars) == 0, len(s.View.Mains) == 0, mark == nil, mark.End == v1alpha1.EndCRR, isRecorded(s.Pod), len(mark.IgnoredExitCodes) == 0 && mark.End == "":
	case mark.End == v1alpha1.EndPodPhase && !hasFailed(s) && slices.ContainsFunc(s.View.Sidecars, runsAndDrains):
		return "the mark keeps the phase although a sidecar drains"
	case mark.End == current && isMarked(s.Pod):
	case permitsExits(mark.End):
		return permitsTooMuch(s, mark.End)
	case mark.End != "" && mark.End != v1alpha1.EndPodPhase:
		return "the mark ends the pod by " + mark.End
	case over && mark.End != current && (mark.End != "" || isMarked(s.Pod) && !slices.ContainsFunc(s.View.Sidecars, draining)):
		return "the mark changes the end"
	case over, mark.End == "":
	case s.Node == plan.NodeUnknown, slices.ContainsFunc(s.View.Sidecars, cannotEnd):
		return "the phase is marked in advance on an unknown node, or although it cannot end a sidecar"
	}
	return ""
}

// permitsExits reports whether the end permits exits that the kubelet follows by a restart.
func permitsExits(end string) bool {
	return end == v1alpha1.EndExited || end == v1alpha1.EndRestarted || end == v1alpha1.EndWaiting
}

func permitsTooMuch(s plan.Snapshot, end string) string {
	runs := func(sidecar resolve.Sidecar) bool {
		waits := status(s.Pod, sidecar.Container).State.Waiting != nil
		return mayRun(s.Pod, sidecar.Container) && (!waits || !recordsSwap(s, sidecar.Container) && !hasQuickExitImage(s, sidecar.Container))
	}
	if isRecorded(s.Pod) && !slices.ContainsFunc(s.View.Sidecars, runs) {
		return "" // each waits for its quick-exit image
	}
	for _, sidecar := range s.View.Sidecars {
		usesPhase := sidecar.Mode == v1alpha1.ModeAuto || sidecar.Mode == podPhase || sidecar.Fallback == v1alpha1.FallbackEnabled
		switch {
		case end == v1alpha1.EndWaiting && sidecar.Drain > 0:
			return "the mark permits the end of a sidecar that waits, although one drains"
		case end != v1alpha1.EndExited && (sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore || !usesPhase || !mayEndByPhase(s, sidecar) || s.Node == plan.NodeUnknown):
			return "the mark permits the end of a restarted sidecar that the phase cannot end"
		}
	}
	if !mayRestart(s.Pod) {
		return "the mark permits ends that need no permission"
	}
	return ""
}

// marksStoppedOnly: a mark says once that OpenKruise has stopped the sidecars of a recorded pod. A CRR says so of each that has not
// ended, and the phase may end all of them.
func marksStoppedOnly(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	mark := markOf(d)
	if mark == nil || mark.End != v1alpha1.EndCRR {
		return ""
	}
	runsOn := func(sidecar resolve.Sidecar) bool {
		return mayRun(s.Pod, sidecar.Container) && (!mayEndByPhase(s, sidecar) || !slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool {
			_, covered := a.RestartCounts[sidecar.Container]
			return a.Stopped && covered
		}))
	}
	if !isRecorded(s.Pod) || endOf(s.Pod) != "" || ownValue(s.Pod, v1alpha1.AnnotationEnd) == v1alpha1.EndCRR || slices.ContainsFunc(s.View.Sidecars, runsOn) {
		return "a mark says that sidecars have stopped which may run"
	}
	return ""
}

// recordsOnlySuccess: a mark records and decides what the admission policy makes of the write, no more and no less. The operator adds a
// record where the policy does not evaluate restart rules, after every container that counts has exited 0 for good, and before the pod
// was disrupted. While an exit of a sidecar may restart the main containers, only the write that also ends the pod records it.
func recordsOnlySuccess(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, mark := range marksOf(d) {
		own := mark.Record
		mark.Record = ""
		if isRecorded(writtenBy(s.Pod, mark)) || own == "" {
			mark.Record = own
			if after := writtenBy(s.Pod, mark); own != "" && recordOf(after) != own || own == "" && isRecorded(after) != isRecorded(s.Pod) {
				return "the admission policy makes another record of the mark: " + recordOf(after)
			}
			continue
		}
		ruled := slices.ContainsFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
		tooEarly := func(sidecar resolve.Sidecar) bool {
			counts := sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore || mark.End != v1alpha1.EndPodPhase && restartsAll(s.Pod, sidecar.Container)
			return counts && mayRun(s.Pod, sidecar.Container)
		}
		if !ruled || isDisturbed(s.Pod) || hasFailed(s) || d.MainsDone.IsZero() || slices.ContainsFunc(s.View.Sidecars, tooEarly) {
			return "a record that is not true, not the operator's, or too early"
		}
	}
	return ""
}

// writtenBy is the pod after a write of the mark, with the admission policy at work.
func writtenBy(pod *corev1.Pod, mark plan.Mark) *corev1.Pod {
	written := pod.DeepCopy()
	written.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
	for key, value := range mark.Annotations(pod) {
		annotate(written, key, value)
	}
	return decide(pod, written)
}

// restartsAll says whether an exit of the container may restart all containers.
func restartsAll(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(specOf(pod, name).RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return r.Action == "RestartAllContainers" })
}

// endsByTheOutcome: the phase ends a pod only when every sidecar that has not ended is due and ignored, and in the phase that the
// exit codes determine. Succeeded needs a record. Nothing is written over a terminal phase.
func endsByTheOutcome(s plan.Snapshot, now time.Time, d plan.Decision) string {
	want := corev1.PodSucceeded
	if hasFailed(s) {
		want = corev1.PodFailed
	}
	mustWait := func(sidecar resolve.Sidecar) bool {
		return mayRun(s.Pod, sidecar.Container) && (sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore || drains(s, now, d, sidecar))
	}
	for _, action := range d.Ends() {
		switch {
		case (action.Mark != nil) != (action.Mode == podPhase):
			return "a mark in another mode, or none"
		case action.Mark == nil:
		case action.Mark.Phase() != want:
			return fmt.Sprintf("phase %s where the outcome is %s", action.Mark.Phase(), want)
		case isTerminal(s.Pod):
			return "a phase over a terminal one"
		case want == corev1.PodSucceeded && !isRecorded(s.Pod) && !s.AssumeMarked && action.Mark.Record == "":
			return "phase Succeeded without a record"
		case slices.ContainsFunc(s.View.Sidecars, mustWait):
			return "a phase while a sidecar that is respected or drains may run"
		}
	}
	return ""
}

// eachSidecar checks each sidecar that an action names.
func eachSidecar(s plan.Snapshot, d plan.Decision, check func(plan.Write, resolve.Sidecar) string) string {
	for _, action := range d.Ends() {
		for _, name := range action.Containers {
			if problem := check(action, *s.View.Sidecar(name)); problem != "" {
				return fmt.Sprintf("%s ends %s: %s", action.Mode, name, problem)
			}
		}
	}
	return ""
}

// usesModesWithinLimits: each mode is used only where the node and the operator's flags allow it. Where the phase is the last resort,
// by the operator's flag, a resource claim or a failed main container, it ends only sidecars that declare it or cannot be swapped, and those
// that would have to end after them.
func usesModesWithinLimits(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	lastResort := s.Capabilities.PodPhase == plan.PodPhaseLastResort || len(s.Pod.Spec.ResourceClaims) > 0 || hasFailed(s)
	return eachSidecar(s, d, func(action plan.Write, sidecar resolve.Sidecar) string {
		switch {
		case action.Mode == podPhase && !mayEndByPhase(s, sidecar):
			return "against the operator's limits"
		case action.Mode == podPhase && lastResort && sidecar.Mode != podPhase && canSwap(s, sidecar) && !endsAfterOther(s, action, sidecar):
			return "it can be swapped"
		case action.Mode == crr && (s.Node != plan.NodeReal || !s.Capabilities.CRR || !s.Capabilities.CRRServed || s.Capabilities.NamespacesOnly):
			return "there is no Kruise"
		}
		return ""
	})
}

func endsAfterOther(s plan.Snapshot, action plan.Write, sidecar resolve.Sidecar) bool {
	return slices.ContainsFunc(action.Containers, func(name string) bool { return s.View.Sidecar(name).Order < sidecar.Order })
}

// keepsOrder: a CRR or a new image ends no sidecar while one with a lower terminationOrder runs that could be swapped, and on which nothing has
// been tried yet. What has been tried on a sidecar may be repeated.
func keepsOrder(s plan.Snapshot, now time.Time, d plan.Decision) string {
	tried := func(name string) bool {
		return slices.ContainsFunc(s.Attempts, func(a plan.Attempt) bool { _, covers := a.RestartCounts[name]; return covers })
	}
	return eachSidecar(s, d, func(action plan.Write, sidecar resolve.Sidecar) string {
		if action.Mode == podPhase || tried(sidecar.Container) {
			return ""
		}
		for _, other := range s.View.Sidecars {
			if other.Order < sidecar.Order && status(s.Pod, other.Container).State.Running != nil && !tried(other.Container) && other.Mode != podPhase &&
				!hasQuickExitImage(s, other.Container) && canSwap(s, other) && other.ExitCodePolicy == v1alpha1.ExitCodePolicyIgnore {
				return other.Container + " has not ended"
			}
		}
		return ""
	})
}

// leavesNoIgnoredExitCode: if the ignored exit code of a sidecar would count after a CRR, its image is swapped first if possible.
// The exception is a declared CRR.
func leavesNoIgnoredExitCode(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	counts := hasFailed(s) || !isMarked(s.Pod) && !s.AssumeMarked
	return eachSidecar(s, d, func(action plan.Write, sidecar resolve.Sidecar) string {
		if counts && action.Mode == crr && sidecar.Mode != crr && sidecar.ExitCodePolicy == v1alpha1.ExitCodePolicyIgnore && canSwap(s, sidecar) {
			return "it can be swapped, and its exit code would count"
		}
		return ""
	})
}

// skipsUnknownSettings: no action may contradict a setting whose value this version does not know.
func skipsUnknownSettings(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	return eachSidecar(s, d, func(action plan.Write, sidecar resolve.Sidecar) string {
		known := sidecar.Fallback == v1alpha1.FallbackEnabled || sidecar.Fallback == v1alpha1.FallbackDisabled
		switch {
		case !slices.Contains([]v1alpha1.Mode{crr, image, podPhase}, action.Mode):
			return "an unknown mode"
		case sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore && sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyRespect:
			return "its exitCodePolicy are unknown"
		case !known && sidecar.Mode != v1alpha1.ModeAuto && action.Mode != sidecar.Mode:
			return "its fallback is unknown"
		}
		return ""
	})
}

// skipsDeniedModes: no action uses a mode whose last write was denied, and there is no action if the records are corrupt.
func skipsDeniedModes(s plan.Snapshot, _ time.Time, d plan.Decision) string {
	for _, action := range d.Ends() {
		if _, denied := s.Denied[action.Mode]; denied || s.InvalidAnnotation != "" {
			return fmt.Sprintf("an action of mode %s, which was denied or has corrupt records", action.Mode)
		}
	}
	return ""
}

// requeues: a decision that waits for time to pass has a requeue delay. Other decisions wait for a change of the pod, its node,
// a policy or OpenKruise, and such a change enqueues the pod.
func requeues(s plan.Snapshot, now time.Time, d plan.Decision) string {
	inProgress := slices.ContainsFunc(s.View.Sidecars, func(sidecar resolve.Sidecar) bool {
		return mayRun(s.Pod, sidecar.Container) && slices.ContainsFunc(attemptsOf(s, d), func(a plan.Attempt) bool { return isLive(s, a, sidecar.Container, now) })
	})
	switch {
	case d.RequeueAfter < 0:
		return "a time in the past"
	case d.MarkWaits && (markOf(d) != nil || d.RequeueAfter == 0 || now.Add(d.RequeueAfter).After(s.MarkAfter)):
		return "a mark waits, and nothing will wake the pod in time"
	case d.RequeueAfter > 0 || len(d.Writes) > 0:
	case d.Reason == v1alpha1.ReasonDraining, d.Reason == v1alpha1.ReasonAttemptInProgress:
		return "nothing will wake the pod"
	case d.Stage == plan.StageTerminating && d.Reason != v1alpha1.ReasonNodeUnknown && inProgress:
		return "nothing will wake the pod at the deadline of an attempt"
	}
	return ""
}

// isDeterministic: the same snapshot and time give the same decision. It is not part of checkInvariants because it calls Next
// a second time.
func isDeterministic(s plan.Snapshot, now time.Time, d plan.Decision) string {
	if again := plan.Next(s, now); again.Message != d.Message || !cmp.Equal(briefly(again), briefly(d)) {
		return "another decision the second time: " + cmp.Diff(d, again)
	}
	return ""
}

// brokenByFinish returns the invariants that decisions of Finish break, or nothing. They are those of Next, without the limits of
// the operator.
func brokenByFinish(s plan.Snapshot, now time.Time) string {
	var broken []string
	for _, wanted := range []v1alpha1.Mode{podPhase, image} {
		chosen := s
		chosen.Capabilities.EnabledModes, chosen.Capabilities.MaxGracePeriod = modes(plan.PodPhaseEnabled), 0
		chosen.AssumeMarked = true
		chosen.View.Sidecars = nil
		for _, declared := range s.View.Sidecars {
			declared.Mode, declared.Fallback = wanted, v1alpha1.FallbackDisabled
			chosen.View.Sidecars = append(chosen.View.Sidecars, declared)
		}
		decision := plan.Finish(s, wanted, now)
		checks := []invariant{
			givesReason, actsOnlyWhenMainsAreDone, namesOnlyOpenSidecars, marksOnlyWhatItMay, recordsOnlySuccess, endsByTheOutcome, skipsUnknownSettings,
		}
		if wanted == image {
			checks = append(checks, keepsOneLiveAttempt)
		}
		for _, check := range checks {
			if problem := check(chosen, now, decision); problem != "" {
				broken = append(broken, string(wanted)+": "+problem)
			}
		}
		if slices.ContainsFunc(decision.Writes, func(a plan.Write) bool { return a.Mode != wanted }) {
			broken = append(broken, string(wanted)+": another mode")
		}
	}
	return strings.Join(broken, "; ")
}

func isMarked(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.LabelOutcome] == "MainContainers" }

// ownValue is the annotation's value, if it is for this pod.
func ownValue(pod *corev1.Pod, annotation string) string {
	value, found := strings.CutSuffix(pod.Annotations[annotation], "/"+string(pod.UID))
	if !found {
		return ""
	}
	return value
}

func endOf(pod *corev1.Pod) string {
	if end := ownValue(pod, v1alpha1.AnnotationEnd); isMarked(pod) && (end == v1alpha1.EndPodPhase || end == v1alpha1.EndFailed) {
		return end
	}
	return ""
}

func recordOf(pod *corev1.Pod) string { return ownValue(pod, v1alpha1.AnnotationMainContainers) }

func isRecorded(pod *corev1.Pod) bool {
	return isMarked(pod) && (recordOf(pod) == v1alpha1.MainsSucceeded || recordOf(pod) == v1alpha1.MainsDecided)
}

// hasFailed says whether the pod has failed by the exit codes that count.
func hasFailed(s plan.Snapshot) bool {
	return slices.ContainsFunc(s.Pod.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		declared := s.View.Sidecar(st.Name)
		counts := declared == nil || declared.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore
		return counts && st.State.Terminated != nil && st.State.Terminated.ExitCode != 0 && !mayRun(s.Pod, st.Name)
	})
}

// mayEndByPhase says whether the node and the operator's flags let the phase end the sidecar.
func mayEndByPhase(s plan.Snapshot, sidecar resolve.Sidecar) bool {
	limit := int64(3600)
	if flag := s.Capabilities.MaxGracePeriod; flag > 0 {
		limit = min(limit, int64(flag/time.Second))
		if sidecar.Policy == nil {
			limit = min(limit, 60)
		}
	}
	return *s.Pod.Spec.TerminationGracePeriodSeconds <= limit && s.Node != plan.NodeVirtual && s.Node != plan.NodeNotRead &&
		(s.Capabilities.PodPhase == plan.PodPhaseEnabled || s.Capabilities.PodPhase == plan.PodPhaseLastResort)
}

// canSwap says whether mode Image can be used for the sidecar, and was not.
func canSwap(s plan.Snapshot, sidecar resolve.Sidecar) bool {
	_, denied := s.Denied[image]
	forbidden := s.Capabilities.Images.Check(sidecar.Image) != nil && sidecar.Origins.Image.Source != resolve.SourceOperator
	fallback := sidecar.Mode == v1alpha1.ModeAuto || sidecar.Mode == image || sidecar.Fallback == v1alpha1.FallbackEnabled
	return sidecar.Image != "" && s.Capabilities.Image && !isTerminal(s.Pod) && !restartsAll(s.Pod, sidecar.Container) && !denied && !forbidden && fallback &&
		runsQuickExit(s.Pod, sidecar) && !recordsSwap(s, sidecar.Container) && !hasQuickExitImage(s, sidecar.Container)
}

func specOf(pod *corev1.Pod, name string) corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	return pod.Spec.Containers[i]
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

// mayRun says whether the container runs or may be started, by the kubelet's rules.
func mayRun(pod *corev1.Pod, name string) bool {
	st := status(pod, name)
	if isTerminal(pod) {
		return st.State.Running != nil
	}
	if st.State.Terminated == nil {
		return true
	}
	container := specOf(pod, name)
	return restartsAfter(pod.Spec.RestartPolicy, &container, st.State.Terminated.ExitCode)
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
	container := specOf(s.Pod, name)
	return container.Image != "" && container.Image == s.View.Sidecar(name).Image
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

// attemptsOf are the attempts of the snapshot, and the one of the phase, which the pod shows.
func attemptsOf(s plan.Snapshot, d plan.Decision) []plan.Attempt {
	if endOf(s.Pod) == "" {
		return s.Attempts
	}
	started := s.PhaseSince
	if started.IsZero() {
		started = d.MainsDone
	}
	return append(slices.Clone(s.Attempts), plan.Attempt{Mode: podPhase, Started: started})
}

// isLive says whether the attempt may still end the container: its deadline has not passed, its mechanism has not finished,
// and it has not failed visibly.
func isLive(s plan.Snapshot, a plan.Attempt, name string, now time.Time) bool {
	if a.Mode == podPhase {
		return isTerminal(s.Pod) && now.Before(a.Started.Add(minute))
	}
	before, covers := a.RestartCounts[name]
	cameBack := a.Mode == crr && status(s.Pod, name).RestartCount > before
	through := !a.Finished.IsZero() && !now.Before(a.Finished.Add(5*time.Second))
	serial := max(len(a.RestartCounts), 1)
	return covers && !cameBack && !through && now.Before(a.Started.Add(time.Duration(serial)*30*time.Second+30*time.Second))
}
