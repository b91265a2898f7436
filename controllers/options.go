// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/internal/settings"
)

// Options are the operator's settings and its clock.
type Options struct {
	settings.Operator
	Clock clock.PassiveClock
	// LedBefore returns until when another process led, or zero if that is unknown. It is called when this process leads.
	LedBefore func() time.Time
}
