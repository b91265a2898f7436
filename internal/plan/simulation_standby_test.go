// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/internal/plan"
)

// standbyDelay is how long the standby leaves a pod to the leader, and standbySeeds the number of runs of each scenario.
const (
	standbyDelay = 3 * time.Second
	standbySeeds = 40
)

// The standby's clock is hours off, and each replica may see changes late. The pod ends as with one replica, with as few writes. A
// leader that sees the pod in time always acts first.
func TestSimulationStandbyBesideLeader(t *testing.T) {
	simulateStandby(t, func(m *model, seed uint64) {
		m.standby.ahead = []time.Duration{-3 * time.Hour, 0, 3 * time.Hour}[seed%3]
	}, func(m *model) {
		m.judge()
		if s := m.scenario; !s.stale && !s.denies && m.standby.writes > 0 {
			m.fail("the standby wrote %d times although the leader runs", m.standby.writes)
		}
	})
}

// The leader is killed around the end of the main container. The standby acts before it leads, and leads once the lease has expired.
func TestSimulationLeaderIsKilled(t *testing.T) {
	simulateStandby(t, func(m *model, _ uint64) {
		killed := done.Add(m.between(-4*time.Second, 3*time.Second))
		m.after(killed.Sub(m.now), func() { m.say("operator", "is killed"); m.operator.down = true })
		m.after(killed.Add(m.between(15*time.Second, 20*time.Second)).Sub(m.now), func() { m.standby.lead() })
	}, func(m *model) {
		// judge looks at the replica that leads.
		m.operator, m.standby = m.standby, m.operator
		m.judge()
	})
}

// simulateStandby runs every scenario with a leader and a standby, and judges its end. Half of the runs have stale caches.
func simulateStandby(t *testing.T, prepare func(m *model, seed uint64), judge func(m *model)) {
	t.Helper()
	for name, scenario := range simulations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range seedsOf(t, standbySeeds) {
				s := scenario
				s.stale = seed%2 == 1
				m := newModel(s, seed)
				m.standby = &operator{m: m, standby: &plan.Standby{}}
				prepare(m, seed)
				m.kubelet.boot()
				m.run(horizon)
				judge(m)
				m.mustBeFine(t, seed)
			}
		})
	}
}

// A pod does not wait until the lease of a killed leader has expired.
func TestSimulationStandbyActsInTime(t *testing.T) {
	all := simulations()
	for name, limit := range map[string]time.Duration{
		"guarded phase: written once despite in-flight updates": standbyDelay + 2*window,
		"Respect: exit code 7 fails the pod":                    standbyDelay + time.Second,
		"virtual node: the image is swapped":                    standbyDelay + time.Second,
		"failed main, Kruise":                                   standbyDelay + time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			scenario, ok := all[name]
			if !ok {
				t.Fatalf("there is no scenario %q", name)
			}
			scenario.restless = false
			for seed := range uint64(standbySeeds) {
				m := newModel(scenario, seed)
				m.operator.down = true
				m.standby = &operator{m: m, standby: &plan.Standby{}}
				m.kubelet.boot()
				m.run(time.Minute)
				wait := m.standby.firstWrite.Sub(done)
				if wait < standbyDelay || wait > limit {
					m.fail("the standby acted %s after the end of the main container, not within %s", wait, limit)
				}
				m.mustBeFine(t, seed)
			}
		})
	}
}

// lead makes a standby the leader: it forgets what it remembers.
func (o *operator) lead() {
	o.m.say(o.name(), "leads")
	*o = operator{m: o.m, seen: o.seen, seenCRRs: o.seenCRRs, seenCRRsVersion: o.seenCRRsVersion, writes: o.writes, firstWrite: o.firstWrite, evidence: o.evidence}
	o.reconcile()
}

func (m *model) mustBeFine(t *testing.T, seed uint64) {
	t.Helper()
	if len(m.problems) > 0 {
		t.Fatalf("seed %d:\n%s\n\n%s", seed, strings.Join(m.problems, "\n"), strings.Join(m.transcript, "\n"))
	}
}
