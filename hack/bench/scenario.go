// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Scenario is one load: how many main containers end, how fast, and the mode that terminates the sidecars.
type Scenario struct {
	Mode v1alpha1.Mode `json:"mode"`
	Pods int           `json:"pods"`
	// Rate is main containers that end per second; zero means as fast as clients can report.
	Rate int `json:"rate,omitempty"`
	// Backlog is true if all main containers have ended before a policy names the sidecars, so that nothing else is written
	// meanwhile.
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

// timeLimit is long enough for a contender that acts on 20 pods a second.
func (s Scenario) timeLimit() time.Duration {
	limit := time.Minute + time.Duration(s.Pods)*50*time.Millisecond
	if s.Rate > 0 {
		limit += time.Duration(s.Pods/s.Rate) * time.Second
	}
	return limit
}

// Contender is what terminates the sidecars.
type Contender string

const (
	// ContenderOperator is this operator with its default flags, except for --stabilization-window=0.
	ContenderOperator Contender = "operator"
	// ContenderKruise is OpenKruise's SidecarTerminator with its default flags.
	ContenderKruise Contender = "kruise"
	// ContenderKruiseLifted is OpenKruise's SidecarTerminator without a request limit and with as many workers as the operator.
	ContenderKruiseLifted Contender = "kruise-lifted"
	// ContenderFloor is a process that watches pods and makes the operator's write at once. Nothing that watches pods does less.
	ContenderFloor Contender = "floor"
	// ContenderWrites are bare clients with a backlog: the rate at which the API server takes the writes alone.
	ContenderWrites Contender = "writes"

	// On kubelets ContenderOperator has a policy with the defaults. These have policies with other modes.
	ContenderPodPhase   Contender = "operator-podphase"
	ContenderCRR        Contender = "operator-crr"
	ContenderCRRRespect Contender = "operator-crr-respect"
	ContenderImage      Contender = "operator-image"
	// ContenderNative are native sidecars, written by hand, and ContenderAlone pods without a sidecar.
	ContenderNative Contender = "native"
	ContenderAlone  Contender = "alone"
)

// contenders are all contenders, in the order of tables.
var contenders = []Contender{
	ContenderFloor, ContenderWrites, ContenderAlone, ContenderNative,
	ContenderOperator, ContenderPodPhase, ContenderCRR, ContenderCRRRespect, ContenderImage, ContenderKruise, ContenderKruiseLifted,
}

// onKubelets are the contenders of the part completion.
var onKubelets = contenders[2 : len(contenders)-1]

// kruise reports whether OpenKruise's SidecarTerminator is the contender.
func (s Contender) kruise() bool { return s == ContenderKruise || s == ContenderKruiseLifted }

// can reports whether the contender supports the scenario. OpenKruise runs mode CRR only: its other modes do something else.
// It has no backlog, because its pods declare their sidecars from the start.
func (s Contender) can(scenario Scenario) bool {
	switch s {
	case ContenderWrites:
		return scenario.Backlog
	case ContenderOperator:
		return true
	case ContenderFloor:
		return !scenario.Backlog
	default:
		return s.kruise() && !scenario.Backlog && scenario.Mode == v1alpha1.ModeCRR
	}
}
