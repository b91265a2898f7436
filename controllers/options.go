// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/internal/settings"
)

// Options are the operator's settings and its clock.
type Options struct {
	settings.Operator
	Clock clock.PassiveClock
}
