// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"
)

func TestStabilizationWindowFitsThePhaseGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		guarded bool
		window  time.Duration
		want    outcome
	}{
		"guard, no wait":         {true, 0, outcomeOK},
		"guard, wait":            {true, 1500 * time.Millisecond, outcomeWarning},
		"no guard, wait":         {false, 1500 * time.Millisecond, outcomeOK},
		"no guard, shorter wait": {false, time.Second, outcomeWarning},
		"no guard, no wait":      {false, 0, outcomeWarning},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checker{}
			c.settings.StabilizationWindow = tc.window
			c.stabilizationWindow(tc.guarded)
			if len(c.checks) != 1 || c.checks[0].Outcome != tc.want {
				t.Errorf("got %+v, want outcome %v", c.checks, tc.want)
			}
		})
	}
}
