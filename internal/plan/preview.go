// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// ModeOption is one mode of a sidecar's fallback chain. Reason and Message say why it cannot be used; they are empty
// where it can.
type ModeOption struct {
	Mode    v1alpha1.Mode
	Reason  v1alpha1.Reason
	Message string
	// PhaseFirst is true for mode CRR where the phase is written before the CRR, as a part of the same attempt. Only
	// ModeOptions sets it.
	PhaseFirst bool
}

// Usable reports whether the mode can end the sidecar.
func (o ModeOption) Usable() bool { return o.Reason == "" }

// ModeOptions lists the modes for the sidecar in the order in which Next would try them in this snapshot if the main
// containers were done. It leaves PodPhase out where mode CRR writes the phase already, and it ignores failed attempts.
func ModeOptions(snapshot Snapshot, sidecar resolve.Sidecar) []ModeOption {
	s := newSituation(snapshot, time.Time{})
	chain := s.fallbackChain(sidecar)
	options := make([]ModeOption, 0, len(chain))
	written := false
	for _, option := range chain {
		switch {
		case !option.Usable():
		case option.Mode == v1alpha1.ModeCRR && s.crrNeedsPhase(sidecar):
			option.PhaseFirst, written = !written, true
		case option.Mode == v1alpha1.ModePodPhase && written:
			continue
		case option.Mode == v1alpha1.ModePodPhase:
			written = true
		}
		options = append(options, option)
	}
	return options
}

// MainDone reports whether the main container has ended and will not run again.
func (s Snapshot) MainDone(name string) bool {
	return !allContainersRestarting(s.Pod) && s.terminatedForGood(name) != nil
}
