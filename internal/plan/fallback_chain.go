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

// unusable is why a mode cannot be used; the zero value means that it can.
type unusable struct {
	reason  v1alpha1.Reason
	message string
}

// fallbackChain lists the modes for the sidecar in the order in which they are tried, usable or not: the declared mode,
// then, with fallback, the modes that Auto would use.
func (s *situation) fallbackChain(sidecar resolve.Sidecar) []ModeOption {
	modes := s.autoOrder(sidecar)
	switch {
	case sidecar.Mode == v1alpha1.ModeAuto, s.imageBeforeCRR(sidecar), s.phaseLast(sidecar):
	case sidecar.Fallback == v1alpha1.FallbackDisabled:
		modes = []v1alpha1.Mode{sidecar.Mode}
	default:
		others := slices.DeleteFunc(modes, func(m v1alpha1.Mode) bool { return m == sidecar.Mode })
		modes = append([]v1alpha1.Mode{sidecar.Mode}, others...)
	}
	chain := make([]ModeOption, 0, len(modes))
	for _, mode := range modes {
		why := s.whyNot(mode, sidecar)
		chain = append(chain, ModeOption{Mode: mode, Reason: why.reason, Message: why.message})
	}
	return chain
}

// autoOrder is the order of mode Auto.
//
//   - CRR goes first: it works with every setting of exitCodes. With Ignore it writes the phase, and OpenKruise stops what
//     that does not end (phaseBeforeCRR).
//   - PodPhase needs nothing in the container and no restart.
//   - Image goes last on a real node, because its restart counts towards the Job's backoffLimit.
//
// Image goes first where CRR would leave an exit code that must be ignored, and where CRR would write a phase that is only
// the last resort, by the operator's flag or because the kubelet ignores it. It
// goes before PodPhase once a main container has failed: an early phase Failed starts the Job's replacement pod while
// sidecars still run.
func (s *situation) autoOrder(sidecar resolve.Sidecar) []v1alpha1.Mode {
	lastResort := s.Capabilities.PodPhase == PodPhaseLastResort || s.Kubelet.IgnoresPhase
	switch {
	case !s.crrHonorsExitCodes(sidecar), lastResort && s.crrNeedsPhase(sidecar):
		return []v1alpha1.Mode{v1alpha1.ModeImage, v1alpha1.ModeCRR, v1alpha1.ModePodPhase}
	case lastResort, s.outcome() == corev1.PodFailed:
		return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	}
	return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModePodPhase, v1alpha1.ModeImage}
}

// crrHonorsExitCodes reports whether the exit code that a CRR leaves counts only if exitCodes allows that. With Ignore it must
// not count: the kubelet restarts the container, as under OnFailure, or the pod has succeeded with a phase that is written
// before the exit. In a failed pod, a Job's podFailurePolicy may match the exit code. A restart costs as much as a swapped
// image.
func (s *situation) crrHonorsExitCodes(sidecar resolve.Sidecar) bool {
	if respected(sidecar) || s.restartsAfterSIGTERM(sidecar) {
		return true
	}
	return s.outcome() == corev1.PodSucceeded && (HasTerminalPhase(s.Pod) || s.phaseBeforeCRR(sidecar))
}

// restartsAfterSIGTERM reports whether the kubelet restarts the sidecar when SIGTERM ends it.
func (s *situation) restartsAfterSIGTERM(sidecar resolve.Sidecar) bool {
	return s.shouldRestart(containerOf(s.Pod, sidecar.Container), ExitCodeSIGTERM)
}

// imageBeforeCRR reports whether Image goes before a declared CRR. It does where the sidecar's exit code would fail a
// pod that has succeeded, because the phase that belongs to mode CRR cannot be written, came back, or is ignored by the
// kubelet. Once a main container has failed, a declared CRR goes first.
func (s *situation) imageBeforeCRR(sidecar resolve.Sidecar) bool {
	exitCodeCounts := !s.crrHonorsExitCodes(sidecar) || s.Kubelet.IgnoresPhase && s.crrNeedsPhase(sidecar)
	return sidecar.Mode == v1alpha1.ModeCRR && sidecar.Fallback == v1alpha1.FallbackEnabled &&
		s.outcome() == corev1.PodSucceeded && exitCodeCounts && s.whyNotImage(sidecar) == (unusable{})
}

// phaseLast reports whether a declared PodPhase goes last, because the kubelet ignores phases.
func (s *situation) phaseLast(sidecar resolve.Sidecar) bool {
	return sidecar.Mode == v1alpha1.ModePodPhase && sidecar.Fallback == v1alpha1.FallbackEnabled && s.Kubelet.IgnoresPhase
}

// whyNot returns why the mode cannot end the sidecar. Settings that this version does not know make every mode
// unusable that they may concern.
func (s *situation) whyNot(mode v1alpha1.Mode, sidecar resolve.Sidecar) unusable {
	switch {
	case sidecar.ExitCodes != v1alpha1.ExitCodesIgnore && sidecar.ExitCodes != v1alpha1.ExitCodesRespect:
		return unknownSetting("exitCodes", string(sidecar.ExitCodes))
	case mode != sidecar.Mode && sidecar.Mode != v1alpha1.ModeAuto &&
		sidecar.Fallback != v1alpha1.FallbackEnabled && sidecar.Fallback != v1alpha1.FallbackDisabled:
		return unknownSetting("fallback", string(sidecar.Fallback))
	}
	switch mode {
	case v1alpha1.ModeCRR:
		return s.whyNotCRR(sidecar)
	case v1alpha1.ModePodPhase:
		return s.whyNotPodPhase(sidecar)
	case v1alpha1.ModeImage:
		return s.whyNotImage(sidecar)
	default:
		return unknownSetting("mode", string(mode))
	}
}

func unknownSetting(field, value string) unusable {
	return unusable{v1alpha1.ReasonUnknownSetting, fmt.Sprintf("this version of the operator does not know %s %q; upgrade the operator, or set another value", field, value)}
}

func (s *situation) whyNotCRR(sidecar resolve.Sidecar) unusable {
	switch {
	case s.Node == NodeVirtual:
		return unusable{v1alpha1.ReasonVirtualNode, fmt.Sprintf("node %s is virtual and has no OpenKruise daemon", s.Pod.Spec.NodeName)}
	case s.Node == NodeDaemonless:
		return unusable{v1alpha1.ReasonNoKruiseDaemon, fmt.Sprintf("node %s does not run OpenKruise's daemon", s.Pod.Spec.NodeName)}
	case !s.Capabilities.Enabled(v1alpha1.ModeCRR):
		return unusable{v1alpha1.ReasonModeDisabled, "the operator runs with --crr=Disabled"}
	case s.Capabilities.NamespacesOnly:
		return unusable{v1alpha1.ReasonCRRUnavailable, "the operator runs with --watch-namespaces, so it cannot tell whether OpenKruise's webhook guards " +
			"ContainerRecreateRequests; declare another mode, or install the operator for the whole cluster"}
	case s.Node == NodeNotRead:
		return s.nodeKindUnknown()
	case !s.Capabilities.CRRServed:
		return unusable{v1alpha1.ReasonCRRUnavailable, "OpenKruise does not serve ContainerRecreateRequests, or its webhook does not guard them; install OpenKruise, or declare another mode"}
	case !hasStarted(statusOf(s.Pod, sidecar.Container)):
		return unusable{v1alpha1.ReasonSidecarNotStarted, fmt.Sprintf("container %s has never started, and OpenKruise stops only containers that have started", sidecar.Container)}
	case restartsAllContainers(containerOf(s.Pod, sidecar.Container)):
		return mayRestartAll(sidecar)
	}
	if phase := s.denied(v1alpha1.ModePodPhase); phase.reason != "" && s.phaseBeforeCRR(sidecar) {
		return asFirstStep(sidecar, phase)
	}
	return s.denied(v1alpha1.ModeCRR)
}

// nodeKindUnknown is the reason of modes that write a phase. On a virtual node, the sidecars of a pod with a written phase would
// run on unseen.
func (s *situation) nodeKindUnknown() unusable {
	return unusable{v1alpha1.ReasonNodeKindUnknown, fmt.Sprintf(
		"the operator does not read nodes, and node %s may be virtual; set its --node-kind to the kind of all nodes, or to Read", s.Pod.Spec.NodeName)}
}

// asFirstStep turns the reason why the phase cannot be written into the reason why mode CRR is unusable.
func asFirstStep(sidecar resolve.Sidecar, phase unusable) unusable {
	return unusable{phase.reason, fmt.Sprintf("mode CRR writes the pod's phase first, so that the exit code of container %s does not count, but %s",
		sidecar.Container, phase.message)}
}

func (s *situation) whyNotPodPhase(sidecar resolve.Sidecar) unusable {
	switch {
	case s.Node == NodeVirtual:
		return unusable{v1alpha1.ReasonVirtualNode, fmt.Sprintf("node %s is virtual and has no kubelet to tear the pod down", s.Pod.Spec.NodeName)}
	case s.Node == NodeNotRead && s.Capabilities.Enabled(v1alpha1.ModePodPhase):
		return s.nodeKindUnknown()
	case s.phaseForbidden(sidecar) != (unusable{}):
		return s.phaseForbidden(sidecar)
	case respected(sidecar):
		return unusable{v1alpha1.ReasonExitCodesRespected, fmt.Sprintf("exitCodes is Respect for container %s, and a written phase would override its exit code", sidecar.Container)}
	}
	return s.denied(v1alpha1.ModePodPhase)
}

// phaseForbidden returns why the operator's flags do not permit writing the pod's phase to end the sidecar. A pod with a
// terminal phase no longer counts for quotas and the scheduler, however long its sidecars run on. A policy with mode
// PodPhase accepts that: its author has the right to write phases.
func (s *situation) phaseForbidden(sidecar resolve.Sidecar) unusable {
	limit := s.Capabilities.MaxGracePeriod
	switch {
	case !s.Capabilities.Enabled(v1alpha1.ModePodPhase):
		return unusable{v1alpha1.ReasonModeDisabled, "the operator runs with --pod-phase=Disabled"}
	case sidecar.Mode == v1alpha1.ModePodPhase && sidecar.Policy != nil:
		return unusable{}
	case limit > 0 && graceSeconds(s.Pod) > int64(limit/time.Second):
		return unusable{v1alpha1.ReasonGracePeriodTooLong, fmt.Sprintf("the pod's terminationGracePeriodSeconds is %d, more than "+
			"--pod-phase-max-grace-period=%s: with its phase written, the pod would not count for quotas while its sidecars run", graceSeconds(s.Pod), limit)}
	}
	return unusable{}
}

func (s *situation) whyNotImage(sidecar resolve.Sidecar) unusable {
	switch {
	case !s.Capabilities.Enabled(v1alpha1.ModeImage):
		return unusable{v1alpha1.ReasonModeDisabled, "the operator runs with --image-swap=Disabled"}
	case sidecar.Image == "":
		return unusable{v1alpha1.ReasonNoQuickExitImage, "no quick-exit image is set; set image in the policy, the container's " +
			v1alpha1.EnvTerminateWithImage + ", or the operator's --quick-exit-image"}
	case HasTerminalPhase(s.Pod):
		return unusable{v1alpha1.ReasonPodFinished, "the kubelet starts no container in a pod with a terminal phase"}
	case restartsAllContainers(containerOf(s.Pod, sidecar.Container)):
		return mayRestartAll(sidecar)
	case s.recordsSwap(sidecar.Container):
		// The image has been swapped already: the pod's status shows whether it covers the command.
		return unusable{}
	}
	for _, why := range []unusable{s.imageForbidden(sidecar), s.commandNotCovered(sidecar)} {
		if why.reason != "" {
			return why
		}
	}
	return s.denied(v1alpha1.ModeImage)
}

// denied reports a mode as unusable because its last write was denied.
func (s *situation) denied(mode v1alpha1.Mode) unusable {
	answer, denied := s.Denied[mode]
	if !denied {
		return unusable{}
	}
	return unusable{v1alpha1.ReasonWriteRefused, "the API server denied the write, which is retried; grant the operator this permission, or exempt it from the webhook: " + answer}
}

// imageForbidden returns why the administrator's list does not permit the image of a policy or an environment variable. The
// operator's default image is always permitted.
func (s *situation) imageForbidden(sidecar resolve.Sidecar) unusable {
	if sidecar.ImageSource == resolve.SourceOperator {
		return unusable{}
	}
	if err := s.Capabilities.Images.Check(sidecar.Image); err != nil {
		return unusable{v1alpha1.ReasonImageNotAllowed, fmt.Sprintf("quick-exit image %s is not allowed: %v; use one that "+
			"--allowed-quick-exit-image of the operator permits, or have it added there", sidecar.Image, err)}
	}
	return unusable{}
}

func mayRestartAll(sidecar resolve.Sidecar) unusable {
	return unusable{v1alpha1.ReasonRestartsAllContainers, fmt.Sprintf(
		"by its restartPolicyRules, an exit of container %s may restart all containers of the pod", sidecar.Container)}
}

// WhyUnusable returns why none of the options can end the sidecar. A single option, a declared mode without fallback,
// gives its own reason.
func WhyUnusable(sidecar resolve.Sidecar, options []ModeOption) (v1alpha1.Reason, string) {
	if len(options) == 1 {
		return options[0].Reason, fmt.Sprintf("mode %s cannot end container %s: %s", options[0].Mode, sidecar.Container, options[0].Message)
	}
	var parts []string
	for _, o := range options {
		parts = append(parts, fmt.Sprintf("%s: %s", o.Mode, o.Message))
	}
	return v1alpha1.ReasonNoUsableMode, fmt.Sprintf("no mode can end container %s (%s)", sidecar.Container, strings.Join(parts, "; "))
}

// outcome is the pod's phase by the exit codes that count: those of the main containers, and of ended sidecars with
// exitCodes Respect.
func (s *situation) outcome() corev1.PodPhase {
	if s.cachedOutcome == "" {
		s.cachedOutcome = s.computeOutcome()
	}
	return s.cachedOutcome
}

func (s *situation) computeOutcome() corev1.PodPhase {
	failed := func(name string) bool {
		end := s.terminatedForGood(name)
		return end != nil && end.ExitCode != 0
	}
	if slices.ContainsFunc(s.View.Mains, failed) || slices.ContainsFunc(s.View.Sidecars, func(sidecar resolve.Sidecar) bool {
		return respected(sidecar) && failed(sidecar.Container)
	}) {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// respected reports whether the sidecar's exit code may count. An unknown value of exitCodes may mean that it does.
func respected(sidecar resolve.Sidecar) bool { return sidecar.ExitCodes != v1alpha1.ExitCodesIgnore }
