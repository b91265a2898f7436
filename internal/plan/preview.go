// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// ModeOption is one mode by which a sidecar might be ended. Reason and Message say why it cannot; they are empty where it can.
type ModeOption struct {
	Mode    v1alpha1.Mode
	Reason  v1alpha1.Reason
	Message string
	// PhaseFirst is true for mode CRR where the phase is written before the request, as a part of the same attempt.
	PhaseFirst bool
}

// Usable reports whether the mode can end the sidecar.
func (o ModeOption) Usable() bool { return o.Reason == "" }

// ModeOptions lists the modes for the target, in the order in which Next would try them in this snapshot, were its main
// containers done. PodPhase is not among them where the phase is written before a request already. It has no account of
// attempts that failed.
func ModeOptions(snapshot Snapshot, target resolve.Target) []ModeOption {
	s := observe(snapshot, time.Time{})
	rungs := s.ladder(target)
	options := make([]ModeOption, 0, len(rungs))
	written := false
	for _, r := range rungs {
		option := ModeOption{Mode: r.mode, Reason: r.reason, Message: r.message}
		switch {
		case !r.usable():
		case r.mode == v1alpha1.ModeCRR && s.requestsNeedPhase(target):
			option.PhaseFirst, written = !written, true
		case r.mode == v1alpha1.ModePodPhase && written:
			continue
		case r.mode == v1alpha1.ModePodPhase:
			written = true
		}
		options = append(options, option)
	}
	return options
}

// WhyNone says why none of the options that ModeOptions gave for the target can be used.
func WhyNone(target resolve.Target, options []ModeOption) (v1alpha1.Reason, string) {
	rungs := make([]rung, 0, len(options))
	for _, o := range options {
		rungs = append(rungs, rung{o.Mode, obstacle{o.Reason, o.Message}})
	}
	return unusable(target, rungs)
}

// MainDone reports whether the main container has ended and will not run again.
func (s Snapshot) MainDone(name string) bool {
	return !allContainersRestarting(s.Pod) && terminatedForGood(s.Pod, name) != nil
}
