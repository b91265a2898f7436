// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// obstacle is why a mode cannot be used; the zero value means that it can.
type obstacle struct {
	reason  v1alpha1.Reason
	message string
}

// rung is one mode of a sidecar's ladder.
type rung struct {
	mode v1alpha1.Mode
	obstacle
}

func (r rung) usable() bool { return r.reason == "" }

// ladder lists the modes for the target in the order in which they are tried, usable or not: the declared one, then,
// with fallback, those that Auto would use.
func (s *situation) ladder(target resolve.Target) []rung {
	modes := s.autoOrder(target)
	switch {
	case target.Mode == v1alpha1.ModeAuto, s.requestGivesWay(target):
	case target.Fallback == v1alpha1.FallbackDisabled:
		modes = []v1alpha1.Mode{target.Mode}
	default:
		others := slices.DeleteFunc(modes, func(m v1alpha1.Mode) bool { return m == target.Mode })
		modes = append([]v1alpha1.Mode{target.Mode}, others...)
	}
	rungs := make([]rung, 0, len(modes))
	for _, mode := range modes {
		rungs = append(rungs, rung{mode, s.obstacle(mode, target)})
	}
	return rungs
}

// autoOrder is the order of Auto. CRR ends a container most gently. PodPhase needs nothing in the container and no
// restart. Image is last on a real node, for there its restart counts towards the Job's backoffLimit. It goes first
// where a request would leave an exit code that is to be ignored, and where the operator writes phases only as a last
// resort. It goes before PodPhase once a main container has failed: a Failed phase that is written early starts the Job's
// replacement pod while sidecars still run.
func (s *situation) autoOrder(target resolve.Target) []v1alpha1.Mode {
	lastResort := s.Capabilities.PodPhase == PodPhaseLastResort
	switch {
	case s.exitCodeWouldCount(target), lastResort && s.requestsNeedPhase(target):
		return []v1alpha1.Mode{v1alpha1.ModeImage, v1alpha1.ModeCRR, v1alpha1.ModePodPhase}
	case lastResort, s.outcome() == corev1.PodFailed:
		return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	}
	return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModePodPhase, v1alpha1.ModeImage}
}

// exitCodeWouldCount reports whether a request for the target would leave an exit code that is to be ignored: beside that
// of a failed main container, where a Job's podFailurePolicy may match it, or in a pod that has succeeded and whose phase
// cannot be written, or was and came back. Where the kubelet starts the container again, as under restartPolicy
// OnFailure, that costs a restart, and so does a swapped image.
func (s *situation) exitCodeWouldCount(target resolve.Target) bool {
	if respected(target) || !s.exitStands(target) {
		return false
	}
	return s.outcome() == corev1.PodFailed || !HasTerminalPhase(s.Pod) && (!s.requestsNeedPhase(target) || s.writtenPhase() != nil)
}

// exitStands reports whether the kubelet leaves the target's container ended when it exits non-zero upon SIGTERM.
func (s *situation) exitStands(target resolve.Target) bool {
	return !shouldRestart(containerOf(s.Pod, target.Container), s.Pod.Spec.RestartPolicy, exitOnSIGTERM)
}

// requestGivesWay reports whether a declared CRR goes after Image: its exit code would fail a pod that has succeeded, since
// the phase that is a part of the mode cannot be written, or came back. Beside a failed main container a declared CRR stays
// what it is.
func (s *situation) requestGivesWay(target resolve.Target) bool {
	return target.Mode == v1alpha1.ModeCRR && target.Fallback == v1alpha1.FallbackEnabled &&
		s.outcome() == corev1.PodSucceeded && s.exitCodeWouldCount(target) && s.obstacleToImage(target) == (obstacle{})
}

// obstacle returns why the mode cannot end the target. What a newer API may mean by a value that this version does not
// know is not guessed.
func (s *situation) obstacle(mode v1alpha1.Mode, target resolve.Target) obstacle {
	switch {
	case target.ExitCodes != v1alpha1.ExitCodesIgnore && target.ExitCodes != v1alpha1.ExitCodesRespect:
		return unknownSetting("exitCodes", string(target.ExitCodes))
	case mode != target.Mode && target.Mode != v1alpha1.ModeAuto &&
		target.Fallback != v1alpha1.FallbackEnabled && target.Fallback != v1alpha1.FallbackDisabled:
		return unknownSetting("fallback", string(target.Fallback))
	}
	switch mode {
	case v1alpha1.ModeCRR:
		return s.obstacleToCRR(target)
	case v1alpha1.ModePodPhase:
		return s.obstacleToPodPhase(target)
	case v1alpha1.ModeImage:
		return s.obstacleToImage(target)
	default:
		return unknownSetting("mode", string(mode))
	}
}

func unknownSetting(field, value string) obstacle {
	return obstacle{v1alpha1.ReasonUnknownSetting, fmt.Sprintf("this version of the operator does not know %s %q; upgrade the operator, or declare another", field, value)}
}

func (s *situation) obstacleToCRR(target resolve.Target) obstacle {
	switch {
	case s.Node == NodeVirtual:
		return obstacle{v1alpha1.ReasonVirtualNode, fmt.Sprintf("node %s is virtual and has no Kruise daemon", s.Pod.Spec.NodeName)}
	case s.Node == NodeDaemonless:
		return obstacle{v1alpha1.ReasonNoKruiseDaemon, fmt.Sprintf("node %s does not run Kruise's daemon", s.Pod.Spec.NodeName)}
	case s.Capabilities.CRRDisabled:
		return obstacle{v1alpha1.ReasonCRRDisabled, "the operator runs with --crr=Disabled"}
	case !s.Capabilities.CRR:
		return obstacle{v1alpha1.ReasonCRRUnavailable, "OpenKruise does not serve ContainerRecreateRequests behind its webhook; install it or declare another mode"}
	case !hasStarted(statusOf(s.Pod, target.Container)):
		return obstacle{v1alpha1.ReasonSidecarNotStarted, fmt.Sprintf("container %s has never started, and Kruise only stops containers that have", target.Container)}
	case restartsAllContainers(containerOf(s.Pod, target.Container)):
		return restartsAllObstacle(target)
	}
	if phase := s.refused(v1alpha1.ModePodPhase); phase.reason != "" && s.phaseGoesFirst(target) {
		return beforeRequest(target, phase)
	}
	return s.refused(v1alpha1.ModeCRR)
}

// beforeRequest tells of an obstacle to the phase that goes before a request for the target.
func beforeRequest(target resolve.Target, phase obstacle) obstacle {
	if phase.reason == "" {
		return phase
	}
	return obstacle{phase.reason, fmt.Sprintf("the pod's phase goes before a request, so that the exit code of container %s does not count, and %s",
		target.Container, phase.message)}
}

func (s *situation) obstacleToPodPhase(target resolve.Target) obstacle {
	switch {
	case s.Node == NodeVirtual:
		return obstacle{v1alpha1.ReasonVirtualNode, fmt.Sprintf("node %s is virtual and has no kubelet to tear the pod down", s.Pod.Spec.NodeName)}
	case s.forbiddenPhase(target) != (obstacle{}):
		return s.forbiddenPhase(target)
	case respected(target):
		return obstacle{v1alpha1.ReasonExitCodesRespected, fmt.Sprintf("the exit code of container %s is to be respected, and the phase would override it", target.Container)}
	}
	return s.refused(v1alpha1.ModePodPhase)
}

// forbiddenPhase says why the operator's flags do not permit it to write the pod's phase in order to end the target. A
// pod with a terminal phase no longer counts for quotas and the scheduler, however long its sidecars run on. A policy that
// declares mode PodPhase accepts that: its author has the right to write phases.
func (s *situation) forbiddenPhase(target resolve.Target) obstacle {
	limit := s.Capabilities.MaxGracePeriod
	switch {
	case !s.Capabilities.PodPhase.Allowed():
		return obstacle{v1alpha1.ReasonPodPhaseDisabled, "the operator runs with --pod-phase=Disabled"}
	case target.Mode == v1alpha1.ModePodPhase && target.Policy != nil:
		return obstacle{}
	case limit > 0 && graceSeconds(s.Pod) > int64(limit/time.Second):
		return obstacle{v1alpha1.ReasonGracePeriodTooLong, fmt.Sprintf("the pod's terminationGracePeriodSeconds is %d, and the operator writes no "+
			"phase beyond %s (--pod-phase-max-grace-period): the pod would no longer count for quotas while its sidecars run", graceSeconds(s.Pod), limit)}
	}
	return obstacle{}
}

func (s *situation) obstacleToImage(target resolve.Target) obstacle {
	switch {
	case s.Capabilities.ImageDisabled:
		return obstacle{v1alpha1.ReasonImageDisabled, "the operator runs with --image-swap=Disabled"}
	case target.Image == "":
		return obstacle{v1alpha1.ReasonNoQuickExitImage, "no quick-exit image is set; set image in the policy, the container's " +
			v1alpha1.EnvTerminateWithImage + ", or the operator's --quick-exit-image"}
	case HasTerminalPhase(s.Pod):
		return obstacle{v1alpha1.ReasonPodFinished, "the kubelet starts no container in a pod with a terminal phase"}
	case restartsAllContainers(containerOf(s.Pod, target.Container)):
		return restartsAllObstacle(target)
	case s.recordsSwap(target.Container):
		// Whether the image covers the command has been tried, and is judged by the pod's status.
		return obstacle{}
	}
	for _, found := range []obstacle{s.forbiddenImage(target), s.uncovered(target)} {
		if found.reason != "" {
			return found
		}
	}
	return s.refused(v1alpha1.ModeImage)
}

// refused is the obstacle of a mode of which a write was refused a moment ago.
func (s *situation) refused(mode v1alpha1.Mode) obstacle {
	answer, refused := s.Refused[mode]
	if !refused {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonWriteRefused, "its write is refused, and is tried again; see to it that the operator may make it: " + answer}
}

// forbiddenImage says why the administrator's list does not permit the image. The operator's own image is permitted by
// the flag that names it, and one that a container names itself is the pod author's own unless the list says otherwise.
func (s *situation) forbiddenImage(target resolve.Target) obstacle {
	list := s.Capabilities.Images
	if target.ImageSource == resolve.SourceOperator || target.ImageSource == resolve.SourceEnvironment && !list.EnvironmentListed {
		return obstacle{}
	}
	if err := list.Check(target.Image); err != nil {
		return obstacle{v1alpha1.ReasonImageNotAllowed, fmt.Sprintf("quick-exit image %s is not allowed: %v; use one that "+
			"--allowed-quick-exit-image and --quick-exit-image-digests of the operator permit, or have it added to them", target.Image, err)}
	}
	return obstacle{}
}

func restartsAllObstacle(target resolve.Target) obstacle {
	return obstacle{v1alpha1.ReasonRestartsAllContainers, fmt.Sprintf(
		"an exit of container %s may restart all containers of the pod by its restartPolicyRules", target.Container)}
}

// unusable describes a ladder without a usable rung. A declared mode without fallback gives its own reason.
func unusable(target resolve.Target, rungs []rung) (v1alpha1.Reason, string) {
	if len(rungs) == 1 {
		return rungs[0].reason, fmt.Sprintf("mode %s cannot end container %s: %s", rungs[0].mode, target.Container, rungs[0].message)
	}
	var parts []string
	for _, r := range rungs {
		parts = append(parts, fmt.Sprintf("%s: %s", r.mode, r.message))
	}
	return v1alpha1.ReasonNoUsableMode, fmt.Sprintf("no mode can end container %s (%s)", target.Container, strings.Join(parts, "; "))
}

// outcome is the pod's phase by the exit codes that count: those of the main containers, and of sidecars that are to be
// respected and have ended.
func (s *situation) outcome() corev1.PodPhase {
	if s.counted == "" {
		s.counted = s.count()
	}
	return s.counted
}

func (s *situation) count() corev1.PodPhase {
	failed := func(name string) bool {
		end := terminatedForGood(s.Pod, name)
		return end != nil && end.ExitCode != 0
	}
	if slices.ContainsFunc(s.View.Mains, failed) || slices.ContainsFunc(s.View.Targets, func(target resolve.Target) bool {
		return respected(target) && failed(target.Container)
	}) {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// respected reports whether the target's exit code counts. One of which it is not known whether it does is left to
// Kubernetes.
func respected(target resolve.Target) bool { return target.ExitCodes != v1alpha1.ExitCodesIgnore }
