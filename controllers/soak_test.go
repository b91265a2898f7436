// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// defaultSoak suits every run of the tests. SOAK=1h makes it longer.
	defaultSoak = 3 * time.Second

	// heapPerPod is the allowed growth of the heap in bytes per pod that has come and gone, and heapNoise the noise of the measurement. A
	// pod that is kept takes about 3,100 bytes: a thousand of them break the limit, and ten minutes see thousands.
	heapPerPod = 1 << 10
	heapNoise  = 2 << 20

	// podsOfRound is the number of pods that come and go together.
	podsOfRound = 12
)

// watches counts the open watches.
type watches struct{ open atomic.Int64 }

func (w *watches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && isWatch(r) {
			w.open.Add(1)
			response.Body = closing{response.Body, sync.OnceFunc(func() { w.open.Add(-1) })}
		}
		return response, err
	})
}

// closing calls a function at the end of a body.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}

// empty deletes everything that the operator works on.
func (f *fixture) empty() {
	f.Helper()
	for _, object := range []client.Object{&corev1.Pod{}, &v1alpha1.SidecarTerminationPolicy{}, &kruise.ContainerRecreateRequest{}} {
		if err := f.DeleteAllOf(f.Context(), object, client.InNamespace(f.namespace), client.GracePeriodSeconds(0)); err != nil {
			f.Fatalf("empty the namespace: %v", err)
		}
	}
}

// held is what an idle operator holds.
type held struct {
	goroutines int
	heap       int64
	watches    int64
}

// held drops the test's own records and collects garbage.
func (f *fixture) held() held {
	f.writes.forget()
	operatorLog.take()
	return held{runtime.NumGoroutine(), podtest.ReachableBytes(), f.watches.open.Load()}
}

// remember returns the number of entries in each of the operator's stores that has any.
func (r reconcilers) remember() map[string]int {
	pods, policies, reporter := r.pods.states, r.policies.states, r.policies.reporter
	for _, lock := range []sync.Locker{&pods.mu, &policies.mu, &reporter.mu} {
		lock.Lock()
		defer lock.Unlock()
	}
	all := map[string]int{
		"pod states": len(pods.pods), "policy states": len(policies.policies), "tallies": len(reporter.tallies),
	}
	maps.DeleteFunc(all, func(_ string, number int) bool { return number == 0 })
	return all
}

// notOurs are goroutines that may remain.
func notOurs() []goleak.Option {
	return append(testenv.KeptConnections(),
		// A goroutine of controller-runtime (filterWatch in pkg/cache/internal) that waits to deliver an event to no one.
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

// TestSoak creates, terminates and deletes pods, along with policies, for the duration of SOAK. What the operator holds must not grow,
// and nothing may remain when it stops.
func TestSoak(t *testing.T) {
	length := defaultSoak
	if value := os.Getenv("SOAK"); value != "" {
		parsed, err := time.ParseDuration(value)
		if err != nil {
			t.Fatal(err)
		}
		length = parsed
	}
	newKruise(t).Install(t)
	f := newFixture(t)
	before := goleak.IgnoreCurrent()
	mgr := f.newManager()
	// No events: client-go keeps each for six to twelve minutes to detect repetitions.
	operator, err := setup(t.Context(), mgr, &events.FakeRecorder{}, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	stop := f.start(mgr)
	modes := []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	rounds := 0
	churn := func() {
		var batch []*corev1.Pod
		for i := range podsOfRound {
			name := fmt.Sprintf("job-%d-%d", rounds, i)
			m := modes[i%len(modes)]
			f.newPolicy(name, mode(m, ""), func(spec *v1alpha1.PolicySpec) { spec.PodSelector.MatchLabels = map[string]string{"team": name} })
			pod := f.newPod(name, func(p *corev1.Pod) {
				p.Labels, p.Spec.TerminationGracePeriodSeconds = map[string]string{"team": name}, new(int64(1))
			})
			f.change(pod, podtest.MainDone)
			batch = append(batch, pod)
		}
		for _, pod := range batch {
			f.until(pod, "the operator has acted", func(pod *corev1.Pod) bool { return succeeded(pod) || imageSwapped(pod) || len(f.crrsOf(pod)) > 0 })
			f.change(pod, podtest.SidecarDone, podtest.Succeeded, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount = 1 })
		}
		for _, pod := range batch {
			policy := &v1alpha1.SidecarTerminationPolicy{}
			policy.Namespace, policy.Name = f.namespace, pod.Name
			f.untilCounts(policy, counts{terminated: 1})
			f.remove(pod)
			f.remove(policy)
		}
		f.empty()
		f.nothingWentWrong()
		rounds++
	}
	// Connections and caches first reach their size.
	for range 2 {
		churn()
	}
	start := f.held()
	warmUp := rounds
	began := time.Now()
	for rounds == warmUp || time.Since(began) < length {
		churn()
	}
	took := time.Since(began)
	rounds -= warmUp
	pods := rounds * podsOfRound
	var end held
	testenv.Eventually(t, "nothing has grown", func(context.Context) error {
		end = f.held()
		if remembered := operator.remember(); len(remembered) > 0 {
			return fmt.Errorf("after %d pods the operator remembers %v", pods, remembered)
		}
		if end.goroutines > start.goroutines+10 || end.watches != start.watches || end.heap-start.heap > heapNoise+int64(pods)*heapPerPod {
			return fmt.Errorf("from %+v to %+v after %d pods", start, end, pods)
		}
		return nil
	})
	t.Logf("%d pods and as many policies in %d rounds, %s: goroutines %d and %d, watches %d and %d, heap %.2f and %.2f MB, %d bytes for each pod",
		pods, rounds, took.Round(time.Second), start.goroutines, end.goroutines, start.watches, end.watches,
		float64(start.heap)/1e6, float64(end.heap)/1e6, (end.heap-start.heap)/int64(pods))
	stop()
	testenv.Eventually(t, "all goroutines have ended", func(context.Context) error {
		return goleak.Find(append(notOurs(), before)...)
	})
}
