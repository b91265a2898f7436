// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Scenario is one load: how many pods' main containers end, how fast, and by which mode sidecars are to be ended.
type Scenario struct {
	Mode v1alpha1.Mode `json:"mode"`
	Pods int           `json:"pods"`
	// Rate is how many main containers end in a second; zero means as fast as the clients can report it.
	Rate int `json:"rate,omitempty"`
	// Backlog is true when all main containers have ended before anything says that their pods have sidecars: what counts is
	// how fast the subject works off what is there, while nothing else happens.
	Backlog bool `json:"backlog,omitempty"`
}

// String is the scenario's name in tables.
func (s Scenario) String() string {
	if s.Backlog {
		return fmt.Sprintf("%s, backlog of %d", s.Mode, s.Pods)
	}
	if s.Rate == 0 {
		return fmt.Sprintf("%s, burst of %d", s.Mode, s.Pods)
	}
	return fmt.Sprintf("%s, %d at %d/s", s.Mode, s.Pods, s.Rate)
}

// timeLimit is long enough for a subject that acts on 20 pods a second.
func (s Scenario) timeLimit() time.Duration {
	limit := time.Minute + time.Duration(s.Pods)*50*time.Millisecond
	if s.Rate > 0 {
		limit += time.Duration(s.Pods/s.Rate) * time.Second
	}
	return limit
}

// Subject is what ends the sidecars.
type Subject string

const (
	// SubjectOperator is this operator with its default flags, but for --settle-period=0.
	SubjectOperator Subject = "operator"
	// SubjectKruise is OpenKruise's SidecarTerminator with its default flags.
	SubjectKruise Subject = "kruise"
	// SubjectKruiseLifted is the same without a limit on requests and with as many workers as the operator has.
	SubjectKruiseLifted Subject = "kruise-lifted"
	// SubjectFloor are the bare clients: whoever has reported the end of a main container asks at once for the end of the
	// sidecar. Nothing that watches pods can be faster.
	SubjectFloor Subject = "floor"
	// SubjectWrites are the bare clients with a backlog: the rate at which the API server takes the writes and nothing else.
	SubjectWrites Subject = "writes"
)

// subjects are all of them, in the order of tables.
var subjects = []Subject{SubjectFloor, SubjectWrites, SubjectOperator, SubjectKruise, SubjectKruiseLifted}

// kruise reports whether OpenKruise's SidecarTerminator is the subject.
func (s Subject) kruise() bool { return s == SubjectKruise || s == SubjectKruiseLifted }

// bare reports whether the benchmark's own clients are the subject.
func (s Subject) bare() bool { return s == SubjectFloor || s == SubjectWrites }

// can reports whether the scenario can be run with the subject. Of OpenKruise only its requests are compared: its other ways
// do something else than this operator's. It has no backlog either, for what its pods have to say they say from the start.
func (s Subject) can(scenario Scenario) bool {
	switch s {
	case SubjectWrites:
		return scenario.Backlog
	case SubjectOperator:
		return true
	default:
		return !scenario.Backlog && (s == SubjectFloor || scenario.Mode == v1alpha1.ModeCRR)
	}
}
