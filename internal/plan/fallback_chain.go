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

// ModeOption is one mode of a sidecar's fallback chain. Reason and Message say why it cannot be used; they are empty
// where it can.
type ModeOption struct {
	Mode    v1alpha1.Mode
	Reason  v1alpha1.Reason
	Message string
}

// Usable reports whether the mode can end the sidecar.
func (o ModeOption) Usable() bool { return o.Reason == "" }

// unusable returns why a mode cannot be used.
func unusable(reason v1alpha1.Reason, format string, arguments ...any) ModeOption {
	return ModeOption{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// ModeOptions lists the modes for the sidecar in the order in which Next would try them in this snapshot if the main
// containers were done. It ignores failed attempts.
func ModeOptions(snapshot Snapshot, sidecar resolve.Sidecar) []ModeOption {
	return newSituation(snapshot, time.Time{}).fallbackChain(sidecar)
}

// firstMode returns the first mode of the chain that is permitted, or "".
func firstMode(chain []ModeOption, permitted func(ModeOption) bool) v1alpha1.Mode {
	if i := slices.IndexFunc(chain, permitted); i >= 0 {
		return chain[i].Mode
	}
	return ""
}

// fallbackChain lists the modes for the sidecar in the order in which they are tried, usable or not: the declared mode,
// then, with fallback, the modes that Auto would use.
func (s *situation) fallbackChain(sidecar resolve.Sidecar) []ModeOption {
	modes := s.modesOf(sidecar)
	chain := make([]ModeOption, 0, len(modes))
	for _, mode := range modes {
		option := s.whyNot(mode, sidecar)
		option.Mode = mode
		chain = append(chain, option)
	}
	return chain
}

// modesOf lists the modes of the fallback chain.
func (s *situation) modesOf(sidecar resolve.Sidecar) []v1alpha1.Mode {
	modes := s.autoOrder(sidecar)
	switch {
	case sidecar.Mode == v1alpha1.ModeAuto:
		return modes
	case sidecar.Fallback == v1alpha1.FallbackDisabled:
		return []v1alpha1.Mode{sidecar.Mode}
	}
	others := slices.DeleteFunc(modes, func(m v1alpha1.Mode) bool { return m == sidecar.Mode })
	return append([]v1alpha1.Mode{sidecar.Mode}, others...)
}

// autoOrder is the order of mode Auto.
//
//   - CRR goes first: the pod stays Running until its sidecar has ended.
//   - PodPhase needs nothing in the container and no restart. The pod no longer counts for quotas while its sidecars run, so it
//     goes last by the operator's flag, where claims of resources or ports of the host would be released too early, and for a sidecar that
//     others wait for by their terminationOrder. It goes first for several sidecars that the kubelet would restart one after the other.
//   - Image goes last, because its restart counts towards the Job's backoffLimit.
//
// Where an exit code that must be ignored would count, Image goes first, because it leaves exit code 0: a Job's podFailurePolicy sees
// the exit codes of a failed pod, and without the admission policy Kubernetes counts them. A phase Failed goes last, because it starts
// the Job's replacement pod while sidecars still run.
func (s *situation) autoOrder(sidecar resolve.Sidecar) []v1alpha1.Mode {
	counts := s.outcome == corev1.PodFailed || !s.outcomeDecided()
	switch {
	case counts && !respected(sidecar):
		return []v1alpha1.Mode{v1alpha1.ModeImage, v1alpha1.ModeCRR, v1alpha1.ModePodPhase}
	case s.Capabilities.PodPhase == PodPhaseLastResort, s.releasedTooEarly(), s.othersWait(sidecar):
		return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	case s.together:
		return []v1alpha1.Mode{v1alpha1.ModePodPhase, v1alpha1.ModeCRR, v1alpha1.ModeImage}
	}
	return []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModePodPhase, v1alpha1.ModeImage}
}

// whyNot returns why the mode cannot end the sidecar. Settings that this version does not know make every mode
// unusable that they may concern.
func (s *situation) whyNot(mode v1alpha1.Mode, sidecar resolve.Sidecar) ModeOption {
	switch {
	case sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore && sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyRespect:
		return unknownSetting("exitCodePolicy", string(sidecar.ExitCodePolicy))
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
	case v1alpha1.ModeAuto:
	}
	return unknownSetting("mode", string(mode))
}

func unknownSetting(field, value string) ModeOption {
	return unusable(v1alpha1.ReasonUnknownSetting, "this version of the operator does not know %s %q; upgrade the operator, or set another value", field, value)
}

// denied reports a mode as unusable because its last write was denied.
func (s *situation) denied(mode v1alpha1.Mode) ModeOption {
	answer, denied := s.Denied[mode]
	if !denied {
		return ModeOption{}
	}
	return unusable(v1alpha1.ReasonWriteRefused,
		"the API server denied the write, which is retried; grant the operator this permission, or exempt it from the webhook: %s", answer)
}

func restartsAll(sidecar resolve.Sidecar) ModeOption {
	return unusable(v1alpha1.ReasonRestartsAllContainers,
		"by its restartPolicyRules, an exit of container %s may restart all containers of the pod", sidecar.Container)
}

// WhyUnusable returns why none of the options can end the sidecar. A single option, a declared mode without fallback,
// gives its own reason.
func WhyUnusable(sidecar resolve.Sidecar, options []ModeOption) (v1alpha1.Reason, string) {
	if len(options) == 1 {
		return options[0].Reason, fmt.Sprintf("mode %s cannot end container %s: %s", options[0].Mode, sidecar.Container, options[0].Message)
	}
	return v1alpha1.ReasonNoUsableMode, fmt.Sprintf("no mode can end container %s (%s)", sidecar.Container, whyNone(options))
}

// whyNone lists the options with why each cannot be used.
func whyNone(options []ModeOption) string {
	var parts []string
	for _, o := range options {
		parts = append(parts, fmt.Sprintf("%s: %s", o.Mode, o.Message))
	}
	return strings.Join(parts, "; ")
}

// respected reports whether the sidecar's exit code may count. An unknown value of exitCodePolicy may mean that it does.
func respected(sidecar resolve.Sidecar) bool {
	return sidecar.ExitCodePolicy != v1alpha1.ExitCodePolicyIgnore
}
