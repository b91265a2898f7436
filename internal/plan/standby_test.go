// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func TestStandbyLeavesPodToLeader(t *testing.T) {
	const second = time.Second
	view := resolve.View{Sidecars: sidecarsOf(sidecar("proxy"), sidecar("logs", drain(10*second)))}
	running := plan.Decision{}
	waits := plan.Decision{MainsDone: done, RequeueAfter: 2 * second}
	// A clock that is ahead takes every drain for over.
	acts := func(action plan.Action) plan.Decision {
		return plan.Decision{MainsDone: done, Actions: []plan.Action{action}, RequeueAfter: minute}
	}
	proxy, logs := plan.Action{Mode: crr, Containers: []string{"proxy"}}, plan.Action{Mode: crr, Containers: []string{"logs"}}
	tried := acts(proxy)
	tried.Tried = crr
	type step struct {
		at       time.Duration
		decision plan.Decision
		overdue  bool
		wait     time.Duration
	}
	for name, steps := range map[string][]step{
		"main containers run": {{0, running, false, 0}, {minute, running, false, 0}},
		"after the delay": {
			{0, acts(proxy), false, 3 * second}, {second, acts(proxy), false, 2 * second}, {3 * second, acts(proxy), true, 0},
		},
		"the leader has the delay again": {
			{0, acts(proxy), false, 3 * second}, {3 * second, acts(proxy), true, 0}, {4 * second, acts(proxy), false, 2 * second},
			{6 * second, acts(proxy), true, 0},
		},
		"the leader has acted": {{0, acts(proxy), false, 3 * second}, {3 * second, tried, false, 0}, {minute, tried, false, 0}},
		"nothing to do yet": {
			{0, waits, false, 2 * second}, {2 * second, acts(proxy), false, 3 * second}, {3 * second, waits, false, 2 * second},
			{4 * second, acts(proxy), false, 3 * second}, {7 * second, acts(proxy), true, 0},
		},
		"main containers run again": {
			{0, acts(logs), false, 13 * second}, {second, running, false, 0}, {2 * second, acts(logs), false, 13 * second},
		},
		"a drain by the standby's own clock": {
			{0, acts(logs), false, 13 * second}, {3 * second, acts(logs), false, 10 * second}, {13 * second, acts(logs), true, 0},
		},
		"a drain that the standby has seen": {
			{0, waits, false, 2 * second}, {12 * second, acts(logs), false, 3 * second}, {15 * second, acts(logs), true, 0},
		},
		"the phase ends every sidecar": {
			{0, acts(plan.Action{Mode: podPhase, Containers: []string{"proxy"}}), false, 13 * second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var standby plan.Standby
			for _, s := range steps {
				overdue, wait := standby.Overdue(view, s.decision, standbyDelay, done.Add(s.at))
				if overdue != s.overdue || wait != s.wait {
					t.Errorf("after %s: overdue %t, wait %s; want %t, %s", s.at, overdue, wait, s.overdue, s.wait)
				}
			}
		})
	}
}
