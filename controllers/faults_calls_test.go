// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// inARow is the maximum number of consecutive failures of one kind of call. A failed watch is retried after 0.8 s to 1.6 s, and the
// delay doubles each time (k8s.io/client-go tools/cache/reflector.go). More failures would exceed the test's timeout.
const inARow = 4

// failingCalls makes a third of all calls of the operator fail, including watches, events and discovery. The seed decides about each
// call of a kind, independently of the order of other kinds. One of three consecutive seeds fails the first call.
type failingCalls struct {
	mu    sync.Mutex
	fails bool // false while every call succeeds
	seed  uint64
	calls int
	// By verb and resource: the random numbers, the number of failures, and the number of consecutive failures.
	random map[string]*rand.Rand
	failed map[string]int
	row    map[string]int
	// log holds every failed call with its time.
	log []string
}

// begin starts failures by the seed.
func (f *failingCalls) begin(seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails, f.seed, f.calls, f.log = true, seed, 0, nil
	f.random, f.failed, f.row = map[string]*rand.Rand{}, map[string]int{}, map[string]int{}
}

// end stops failures.
func (f *failingCalls) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = false
}

// choose returns the fault of a call.
func (f *failingCalls) choose(request *http.Request) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fails {
		return noFault
	}
	f.calls++
	info := callOf(request)
	call := info.Verb + " " + target(info)
	random, fails := f.fate(call)
	if !fails || f.row[call] == inARow {
		f.row[call] = 0
		return noFault
	}
	f.failed[call]++
	f.row[call]++
	befell := answers[random.IntN(len(answers))]
	f.log = append(f.log, fmt.Sprintf("%s %s: %s", time.Now().Format(time.TimeOnly), call, befell))
	return befell
}

// fate returns the random numbers of a kind of call, and whether its next call fails.
func (f *failingCalls) fate(call string) (*rand.Rand, bool) {
	if random, known := f.random[call]; known {
		return random, random.IntN(10) < 3
	}
	kind := fnv.New64a()
	_, _ = kind.Write([]byte(call))
	f.random[call] = rand.New(rand.NewPCG(f.seed, kind.Sum64()))
	return f.random[call], (kind.Sum64()%3+f.seed)%3 == 0
}

func (f *failingCalls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		return f.choose(request).apply(request, next)
	})
}

func TestFaultThirdOfOperatorCallsFails(t *testing.T) {
	seeds := 3
	if every {
		seeds = 20
	}
	k := newKruise(t)
	failed := map[string]int{}
	calls := 0
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			f := newFixture(t)
			mgr := f.newManager()
			if err := Setup(t.Context(), mgr, testOptions()); err != nil {
				t.Fatal(err)
			}
			f.failing.begin(uint64(seed))
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("calls that failed:\n%s", strings.Join(f.failing.log, "\n"))
				}
			})
			f.start(mgr)
			s := newStory(f, nil)
			s.happens(k)
			s.wentAsItShould()
			f.failing.end()
			calls += f.failing.calls
			for call, times := range f.failing.failed {
				failed[call] += times
			}
		})
	}
	t.Logf("of %d calls failed %d: %v", calls, total(failed), failed)
	for _, often := range []string{"get discovery", "watch pods", "watch sidecarterminationpolicies", "update sidecarterminationpolicies/status"} {
		if failed[often] == 0 {
			t.Errorf("no call %q failed", often)
		}
	}
}
