// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// every is set by FAULTS=all (make test-faults). Otherwise each kind of fault runs on some of the scenarios.
var every = os.Getenv("FAULTS") == "all"

// oneIn returns every n-th scenario and the rare ones, or all.
func oneIn(n int) []scenario {
	var list []scenario
	for i, s := range scenarios() {
		if every || s.rare || i%n == 0 {
			list = append(list, s)
		}
	}
	return list
}

// tally sums up runs.
type tally struct {
	mu                                    sync.Mutex
	scenarios                             int
	runs, writes, faults, restarts, reads int
	sites                                 map[string]int // of all writes
	met                                   map[string]int // of writes with a fault
}

// begin counts a scenario.
func (s *tally) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scenarios++
}

func (s *tally) add(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.writes += r.wire.number
	s.faults += r.wire.faults
	s.restarts += r.restarts
	s.reads += r.reads
	if s.sites == nil {
		s.sites, s.met = map[string]int{}, map[string]int{}
	}
	for _, site := range r.wire.sites {
		s.sites[site]++
	}
	for _, site := range r.wire.met {
		s.met[site]++
	}
}

// everySite fails unless faults hit every site at which the operator writes. A run of some of the scenarios need not reach them all.
func (s *tally) everySite(t *testing.T, scenarios int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scenarios < scenarios {
		return
	}
	if diff := cmp.Diff(writeSites, slices.Sorted(maps.Keys(s.met))); diff != "" {
		t.Errorf("the sites of the faults (-want +got):\n%s", diff)
	}
}

func (s *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d runs, %d writes at %d kinds of sites, %d of them with a fault, %d restarts, %d reads of a cache",
		s.runs, s.writes, len(s.sites), s.faults, s.restarts, s.reads)
	for _, site := range slices.Sorted(maps.Keys(s.sites)) {
		t.Logf("  %s: %d, %d of them with a fault", site, s.sites[site], s.met[site])
	}
}

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
	scenario scenario
	number   int // in the list of scenarios that run
	sum      *tally

	reference *run // the run without faults
	want      outcome
}

// tryEach runs the scenarios in parallel and returns their tally at the end.
func tryEach(t *testing.T, list []scenario, try func(*trial)) *tally {
	t.Helper()
	k := newKruise(t)
	k.Install(t)
	sum := &tally{}
	// Cleanups run after parallel subtests.
	t.Cleanup(func() { sum.log(t) })
	for i, s := range list {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			try(newTrial(t, k, s, i, sum))
		})
	}
	return sum
}

// tryEachSite is tryEach for faults of every write. It requires faults at each site.
func tryEachSite(t *testing.T, list []scenario, try func(*trial)) {
	t.Helper()
	sum := tryEach(t, list, try)
	t.Cleanup(func() { sum.everySite(t, len(list)) })
}

// newTrial runs the scenario without faults.
func newTrial(t *testing.T, k *testenv.Kruise, s scenario, number int, sum *tally) *trial {
	t.Helper()
	tr := &trial{fixture: newFixture(t), scenario: s, number: number, sum: sum}
	tr.enforceGuard()
	if s.nodeLabels != nil {
		tr.node = tr.newNode(s.nodeLabels)
	}
	if s.kruise == kruiseDenies {
		k.DenyIn(tr.namespace, http.StatusForbidden)
	}
	sum.begin()
	tr.reference, tr.want = s.execute(tr.fixture, disturbance{})
	if len(tr.reference.problems) > 0 {
		t.Errorf("without faults: %s", strings.Join(tr.reference.problems, "\n"))
	}
	return tr
}

// disturb runs the scenario with the disturbance and returns the differences of that run.
func (tr *trial) disturb(d disturbance) (*run, []string) {
	tr.Helper()
	r, got := tr.scenario.execute(tr.fixture, d)
	tr.sum.add(r)
	return r, differences(tr.want, got, r)
}

// same fails if the disturbance makes a difference.
func (tr *trial) same(what string, d disturbance) *run {
	tr.Helper()
	r, found := tr.disturb(d)
	if len(found) > 0 {
		tr.Errorf("%s: %s\nwrites %q", what, strings.Join(found, "\n"), r.wire.sites)
	}
	return r
}

// onceAt applies the fault to one write.
func onceAt(number int, f fault) func(int, string) fault {
	return func(n int, _ string) fault {
		if n == number {
			return f
		}
		return noFault
	}
}

func TestFaultCrashAfterAnyWrite(t *testing.T) {
	tryEachSite(t, oneIn(4), func(tr *trial) {
		for number := range tr.reference.wire.number {
			what := fmt.Sprintf("crash after write %d", number+1)
			if r := tr.same(what, disturbance{write: onceAt(number+1, crashed)}); r.restarts != 1 {
				tr.Errorf("%s: %d restarts", what, r.restarts)
			}
		}
	})
}

func TestFaultAnyAnswerToAnyWrite(t *testing.T) {
	tryEachSite(t, oneIn(4), func(tr *trial) {
		for number := range tr.reference.wire.number {
			for j, answer := range answers {
				if every || (tr.number+number)%3 == j%3 {
					what := fmt.Sprintf("write %d: %s", number+1, answer)
					if r := tr.same(what, disturbance{write: onceAt(number+1, answer)}); r.wire.faults != 1 {
						tr.Errorf("%s: %d faults", what, r.wire.faults)
					}
				}
			}
		}
	})
}

func TestFaultThirdOfReconcilerCallsFails(t *testing.T) {
	seeds := 1
	if every {
		seeds = 5
	}
	faults := append(slices.Clone(answers), crashed)
	tryEach(t, oneIn(2), func(tr *trial) {
		for seed := range seeds {
			random := rand.New(rand.NewPCG(uint64(tr.number), uint64(seed)))
			tr.same(fmt.Sprintf("seed %d", seed), disturbance{
				write: func(int, string) fault {
					if random.IntN(10) < 3 {
						return faults[random.IntN(len(faults))]
					}
					return noFault
				},
				read: func(int) (int, error) {
					if random.IntN(10) < 3 {
						return 0, errors.New("injected: the read failed")
					}
					return 0, nil
				},
			})
		}
	})
}

func TestFaultStaleReads(t *testing.T) {
	tryEach(t, oneIn(4), func(tr *trial) {
		for _, lag := range []int{1, 2, 3, 4} {
			tr.same(fmt.Sprintf("%d writes behind", lag), disturbance{read: func(int) (int, error) { return lag, nil }})
		}
		random := rand.New(rand.NewPCG(uint64(tr.number), 0))
		tr.same("up to 5 writes behind, each read otherwise", disturbance{read: func(int) (int, error) { return random.IntN(6), nil }})
	})
}

func TestFaultAnyChangeGoesUnnoticed(t *testing.T) {
	tryEach(t, oneIn(8), func(tr *trial) {
		for number := range tr.reference.reconciles {
			tr.same(fmt.Sprintf("reconcile %d is dropped", number+1), disturbance{skip: func(n int) bool { return n == number+1 }})
		}
	})
}

func TestFaultWrongClock(t *testing.T) {
	tryEach(t, oneIn(4), func(tr *trial) {
		for _, clock := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
			tr.same(fmt.Sprintf("clock off by %s", clock), disturbance{clock: clock})
		}
	})
}

// The tests above must detect a broken operator. Each of these changes could be a mistake in the operator.
func TestFaultSuiteDetectsBrokenOperator(t *testing.T) {
	k := newKruise(t)
	k.Install(t)
	all := scenarios()
	find := func(name string) scenario {
		i := slices.IndexFunc(all, func(s scenario) bool { return strings.HasPrefix(s.name, name) })
		return all[i]
	}
	number := 0
	for name, tc := range map[string]struct {
		scenario    scenario
		disturbance disturbance
	}{
		"CRR names that are not deterministic": {find("CRR, Never, Respect"), disturbance{
			read: func(int) (int, error) { return 4, nil },
			change: edit("POST containerrecreaterequests", func(body string) string {
				number++
				return strings.Replace(body, `"name":"sidecar-termination-`, fmt.Sprintf(`"name":"x%d-`, number), 1)
			}),
		}},
		"a phase record that is not stored": {find("PodPhase, Never"), disturbance{
			change: edit("PATCH pods/status", func(body string) string {
				return strings.Replace(body, v1alpha1.AnnotationPodPhase, "example.com/lost", 1)
			}),
		}},
		"a CRR for a main container": {find("CRR, Never, Respect"), disturbance{
			change: edit("POST containerrecreaterequests", func(body string) string {
				return strings.Replace(body, `"name":"logger"`, `"name":"main"`, 1)
			}),
		}},
		"a pod that is not requeued": {find("PodPhase, one drains"), disturbance{timeless: true}},
		"a status that always changes": {find("Image, Never"), disturbance{
			change: edit("PUT sidecarterminationpolicies/status", func(body string) string {
				return strings.Replace(body, `"matchedPods":`, `"matchedPods":1`, 1)
			}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, found := newTrial(t, k, tc.scenario, 0, &tally{}).disturb(tc.disturbance)
			if len(found) == 0 {
				t.Errorf("no problem was detected; writes %q", r.wire.sites)
			}
			t.Logf("found: %s", strings.Join(found, "\n"))
		})
	}
}

// edit returns a change of the bodies of writes at a site.
func edit(site string, change func(string) string) func(*http.Request) {
	return func(request *http.Request) {
		if siteOf(request) != site {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		body = []byte(change(string(body)))
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
}
