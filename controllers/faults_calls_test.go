// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// inARow is how many calls of one kind fail in a row at most. A watch that fails is made anew after 0.8 s to 1.6 s, and after
// twice as long each time (k8s.io/client-go tools/cache/reflector.go); more of them would take as long as a test waits.
const inARow = 4

// failingCalls has a third of all calls of the operator fail, watches, events and discovery among them.
type failingCalls struct {
	mu     sync.Mutex
	random *rand.Rand // nil while every call gets through
	calls  int
	failed map[string]int // by verb and resource
	row    map[string]int // how many of them in a row
	// log has every call that failed, with the time.
	log []string
}

// begin has calls fail from now on, by the seed, or no more.
func (f *failingCalls) begin(random *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.random = random
	if random != nil {
		f.calls, f.failed, f.row, f.log = 0, map[string]int{}, map[string]int{}, nil
	}
}

// choose says what befalls a call.
func (f *failingCalls) choose(request *http.Request) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.random == nil {
		return noFault
	}
	f.calls++
	info := callOf(request)
	call := info.Verb + " " + target(info)
	if f.random.IntN(10) >= 3 || f.row[call] == inARow {
		f.row[call] = 0
		return noFault
	}
	f.failed[call]++
	f.row[call]++
	befell := answers[f.random.IntN(len(answers))]
	f.log = append(f.log, fmt.Sprintf("%s %s: %s", time.Now().Format(time.TimeOnly), call, befell))
	return befell
}

func (f *failingCalls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		return f.choose(request).befall(request, next)
	})
}

func TestAThirdOfAllCallsOfTheOperatorMayFail(t *testing.T) {
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
			f.failing.begin(rand.New(rand.NewPCG(uint64(seed), 1)))
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("calls that failed:\n%s", strings.Join(f.failing.log, "\n"))
				}
			})
			f.start(mgr)
			s := newStory(f, nil)
			s.happens(k)
			s.wentAsItShould()
			f.failing.begin(nil)
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
