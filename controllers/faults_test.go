// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/testenv"
)

// every is set by LONG=1. Otherwise some faults run on some of the scenarios.
var every = testenv.Long()

// differences returns the differences and problems of a disturbed run. Totals do not count after a crash.
func differences(want, got outcome, r *run) []string {
	list := slices.Clone(r.problems)
	if r.restarts > 0 {
		want.Totals, got.Totals = nil, nil
	}
	// A disturbed run must not stop anything more often than the run without faults. It may stop less: once the kubelet has torn the
	// pod down, no CRR is needed.
	surplus := slices.Clone(got.Kills)
	for _, k := range want.Kills {
		if i := slices.Index(surplus, k); i >= 0 {
			surplus = slices.Delete(surplus, i, i+1)
		}
	}
	if len(surplus) > 0 {
		list = append(list, fmt.Sprintf("stopped once too often: %+v", surplus))
	}
	want.Kills, got.Kills = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		list = append(list, "another outcome (-undisturbed +disturbed):\n"+diff)
	}
	return list
}

// trial is one scenario that is run repeatedly in its own namespace, each time with another disturbance.
type trial struct {
	*fixture
	scenario  scenario
	number    int  // of the scenario
	reference *run // the run without faults
	want      outcome
	met       []string // sites of writes with a fault
}

// newTrial runs the scenario without faults.
func newTrial(t *testing.T, k *testenv.Kruise, s scenario, number int) *trial {
	t.Helper()
	tr := &trial{fixture: newFixture(t), scenario: s, number: number}
	if s.undecided {
		tr.namespace = tr.newNamespace(map[string]string{undecidedLabel: "true"})
	}
	if s.nodeLabels != nil {
		tr.node = tr.newNode(s.nodeLabels)
	}
	if s.kruise == kruiseDenies {
		k.Deny("containerrecreaterequests", tr.namespace, "denied by the test")
	}
	tr.reference, tr.want = s.execute(tr.fixture, disturbance{})
	if len(tr.reference.problems) > 0 {
		t.Errorf("without faults: %s", strings.Join(tr.reference.problems, "\n"))
	}
	return tr
}

// same runs the scenario with the disturbance, and fails if that makes a difference.
func (tr *trial) same(what string, d disturbance) *run {
	tr.Helper()
	r, got := tr.scenario.execute(tr.fixture, d)
	tr.met = append(tr.met, r.wire.met...)
	if found := differences(tr.want, got, r); len(found) > 0 {
		tr.Errorf("%s: %s\nwrites %q", what, strings.Join(found, "\n"), r.wire.sites)
	}
	return r
}

// onceAt applies the fault to one write.
func onceAt(number int, f fault) func(int) fault {
	return func(n int) fault {
		if n == number {
			return f
		}
		return noFault
	}
}

// Whatever fails, the scenario has the same outcome. Faults must hit every site at which the operator writes.
func TestFaults(t *testing.T) {
	k := newKruise(t)
	k.Install(t)
	var mu sync.Mutex
	met, ran, some := map[string]bool{}, 0, 0
	// Cleanups run after parallel subtests.
	t.Cleanup(func() {
		if diff := cmp.Diff(writeSites, slices.Sorted(maps.Keys(met))); diff != "" && ran == some {
			t.Errorf("the sites of the faults (-want +got):\n%s", diff)
		}
	})
	for i, s := range scenarios() {
		if !every && !s.rare && i%6 != 0 {
			continue
		}
		some++
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, k, s, i)
			tr.crashAfterAnyWrite()
			tr.anyAnswerToAnyWrite()
			if !s.decidesTooLate() {
				tr.thirdOfCallsFails()
				tr.staleReads()
			}
			tr.anyChangeGoesUnnoticed()
			tr.wrongClock()
			mu.Lock()
			defer mu.Unlock()
			ran++
			for _, site := range tr.met {
				met[site] = true
			}
		})
	}
}

func (tr *trial) crashAfterAnyWrite() {
	for number := range tr.reference.wire.number {
		what := fmt.Sprintf("crash after write %d", number+1)
		if r := tr.same(what, disturbance{write: onceAt(number+1, crashed)}); r.restarts != 1 {
			tr.Errorf("%s: %d restarts", what, r.restarts)
		}
	}
}

func (tr *trial) anyAnswerToAnyWrite() {
	for number := range tr.reference.wire.number {
		for j, answer := range answers {
			if every || (tr.number+number)%len(answers) == j {
				what := fmt.Sprintf("write %d: %s", number+1, answer)
				if r := tr.same(what, disturbance{write: onceAt(number+1, answer)}); len(r.wire.met) != 1 {
					tr.Errorf("%s: %d faults", what, len(r.wire.met))
				}
			}
		}
	}
}

func (tr *trial) thirdOfCallsFails() {
	seeds := 1
	if every {
		seeds = 5
	}
	faults := append(slices.Clone(answers), crashed)
	for seed := range seeds {
		random := rand.New(rand.NewPCG(uint64(tr.number), uint64(seed)))
		tr.same(fmt.Sprintf("seed %d", seed), disturbance{
			write: func(int) fault {
				if random.IntN(10) < 3 {
					return faults[random.IntN(len(faults))]
				}
				return noFault
			},
			read: func() (int, error) {
				if random.IntN(10) < 3 {
					return 0, errors.New("injected: the read failed")
				}
				return 0, nil
			},
		})
	}
}

func (tr *trial) staleReads() {
	lags := []int{2}
	if every {
		lags = []int{1, 2, 3, 4}
	}
	for _, lag := range lags {
		tr.same(fmt.Sprintf("%d writes behind", lag), disturbance{read: func() (int, error) { return lag, nil }})
	}
	random := rand.New(rand.NewPCG(uint64(tr.number), 0))
	tr.same("up to 5 writes behind, each read otherwise", disturbance{read: func() (int, error) { return random.IntN(6), nil }})
}

func (tr *trial) anyChangeGoesUnnoticed() {
	for number := range tr.reference.reconciles {
		if every || (tr.number/4+number)%2 == 0 {
			tr.same(fmt.Sprintf("reconcile %d is dropped", number+1), disturbance{skip: func(n int) bool { return n == number+1 }})
		}
	}
}

func (tr *trial) wrongClock() {
	for _, clock := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		tr.same(fmt.Sprintf("clock off by %s", clock), disturbance{clock: clock})
	}
}
