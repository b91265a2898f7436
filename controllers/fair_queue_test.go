// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func newTestQueue(t *testing.T) *fairQueue {
	t.Helper()
	q := newFairQueue(t.Name(), workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)).(*fairQueue)
	t.Cleanup(q.ShutDown)
	return q
}

// requestOf returns the request of namespace/name.
func requestOf(text string) reconcile.Request {
	namespace, name, _ := strings.Cut(text, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func lowPriority(after time.Duration) priorityqueue.AddOpts {
	return priorityqueue.AddOpts{After: after, Priority: new(handler.LowPriority)}
}

// drain returns what the queue hands out until it is empty. Low priority is "low".
func drain(q *fairQueue) []string {
	var got []string
	for q.Len() > 0 {
		request, priority, _ := q.GetWithPriority()
		q.Done(request)
		got = append(got, strings.TrimSuffix(request.String()+map[int]string{handler.LowPriority: " low"}[priority], " "))
	}
	return got
}

func TestFairQueueOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		full, low, fullAgain []string
		want                 []string
	}{
		"in order within a namespace": {full: []string{"a/1", "a/2", "a/3"}, want: []string{"a/1", "a/2", "a/3"}},
		"namespaces take turns":       {full: []string{"a/1", "a/2", "a/3", "b/1", "c/1", "b/2"}, want: []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}},
		"full priority first":         {low: []string{"a/1", "b/1"}, full: []string{"a/2", "a/3"}, want: []string{"a/2", "a/3", "a/1 low", "b/1 low"}},
		"low priority takes turns":    {low: []string{"a/1", "a/2", "b/1"}, want: []string{"a/1 low", "b/1 low", "a/2 low"}},
		"moves up":                    {low: []string{"a/1", "a/2", "a/3"}, fullAgain: []string{"a/2"}, want: []string{"a/2", "a/1 low", "a/3 low"}},
		"moves up behind others":      {full: []string{"a/1"}, low: []string{"a/2"}, fullAgain: []string{"a/2"}, want: []string{"a/1", "a/2"}},
		"never moves down":            {full: []string{"a/1", "a/2"}, low: []string{"a/1"}, want: []string{"a/1", "a/2"}},
		"once":                        {full: []string{"a/1", "a/2", "a/1"}, fullAgain: []string{"a/1"}, want: []string{"a/1", "a/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			for _, text := range tc.full {
				q.Add(requestOf(text))
			}
			for _, text := range tc.low {
				q.AddWithOpts(lowPriority(0), requestOf(text))
			}
			for _, text := range tc.fullAgain {
				q.Add(requestOf(text))
			}
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			isEmpty(t, q)
		})
	}
}

// isEmpty requires that the queue remembers no request and no namespace.
func isEmpty(t *testing.T, q *fairQueue) {
	t.Helper()
	kept := len(q.order.places) + len(q.order.urgent) + len(q.order.inProgress) + q.order.ready
	for _, level := range q.order.levels {
		kept += level.next.Len() + len(level.namespaces)
	}
	if kept > 0 {
		t.Errorf("an empty queue keeps %d entries: %+v", kept, q.order)
	}
}

func TestFairQueueHoldsBackBusyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		for i := range maxInProgress + 2 {
			q.Add(requestOf(fmt.Sprintf("a/%d", i)))
		}
		q.AddWithOpts(lowPriority(0), requestOf("a/low"))
		var busy []reconcile.Request
		for range maxInProgress {
			request, _ := q.Get()
			busy = append(busy, request)
		}
		q.AddWithOpts(lowPriority(0), requestOf("b/low"))
		if diff := cmp.Diff([]string{"b/low low"}, drain(q)); diff != "" {
			t.Errorf("requests beside those in progress (-want +got):\n%s", diff)
		}
		got := make(chan reconcile.Request)
		go func() {
			request, _ := q.Get()
			got <- request
		}()
		synctest.Wait()
		q.Done(busy[0])
		if request := <-got; request != requestOf(fmt.Sprintf("a/%d", maxInProgress)) {
			t.Errorf("a worker that waited got %s, want the next request of the namespace", request)
		}
	})
}

func TestFairQueueAddsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		q.AddWithOpts(lowPriority(2*time.Second), requestOf("a/low"))
		q.AddAfter(requestOf("a/full"), 2*time.Second)
		q.AddRateLimited(requestOf("a/failed"))
		q.AddRateLimited(requestOf("b/failed"))
		q.AddRateLimited(requestOf("b/failed"))
		if got := []int{q.NumRequeues(requestOf("a/failed")), q.NumRequeues(requestOf("b/failed"))}; !slices.Equal(got, []int{1, 2}) {
			t.Errorf("requeues %v, want 1 and 2", got)
		}
		q.AddWithOpts(priorityqueue.AddOpts{After: 500 * time.Millisecond, RateLimited: true}, requestOf("b/failed"))
		for _, want := range [][]string{{"b/failed"}, {"a/failed"}, nil, {"a/full", "a/low low"}} {
			time.Sleep(600 * time.Millisecond)
			synctest.Wait()
			if diff := cmp.Diff(want, drain(q)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		}
		q.Forget(requestOf("b/failed"))
		if got := q.NumRequeues(requestOf("b/failed")); got != 0 {
			t.Errorf("%d requeues after Forget", got)
		}
	})
}

func TestFairQueueShutsDown(t *testing.T) {
	q, idle := newTestQueue(t), newTestQueue(t)
	q.Add(requestOf("a/1"))
	q.ShutDown()
	if _, shutdown := q.Get(); !shutdown {
		t.Error("a queue that was shut down hands out requests")
	}
	q.Add(requestOf("a/2"))
	q.AddWithOpts(lowPriority(time.Second), requestOf("a/3"))
	if q.Len() != 0 {
		t.Errorf("%d requests are queued after the shutdown", q.Len())
	}
	stopped := make(chan bool)
	for range 3 {
		go func() {
			_, shutdown := idle.Get()
			stopped <- shutdown
		}()
	}
	idle.ShutDown()
	for range 3 {
		if !<-stopped {
			t.Error("an idle worker gets a request")
		}
	}
}

func TestFairQueueHasMetrics(t *testing.T) {
	q := newTestQueue(t)
	q.Add(requestOf("a/1"))
	q.AddWithOpts(lowPriority(0), requestOf("a/2"))
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "name" && label.GetValue() == t.Name() && strings.HasPrefix(family.GetName(), "workqueue_") {
					got[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
				}
			}
		}
	}
	want := map[string]float64{
		"workqueue_depth": 2, "workqueue_adds_total": 2, "workqueue_queue_duration_seconds": 0, "workqueue_work_duration_seconds": 0,
		"workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0, "workqueue_retries_total": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// modelQueue is a slow and simple fairQueue.
type modelQueue struct {
	full, low  []string // in the order of arrival
	turns      [2][]string
	inProgress map[string]bool
	again      map[string]string // "full" or "low" for requests in progress
}

func (m *modelQueue) add(text string, full bool) {
	switch {
	case m.inProgress[text]:
		if full || m.again[text] == "" {
			m.again[text] = map[bool]string{true: "full", false: "low"}[full]
		}
	case slices.Contains(m.full, text):
	case full:
		m.low = slices.DeleteFunc(m.low, func(queued string) bool { return queued == text })
		m.full = append(m.full, text)
	case !slices.Contains(m.low, text):
		m.low = append(m.low, text)
	}
	m.keepTurns()
}

// keepTurns gives new namespaces the last turns, and drops those without requests and those that are held back.
func (m *modelQueue) keepTurns() {
	for level, queued := range [][]string{m.full, m.low} {
		m.turns[level] = slices.DeleteFunc(m.turns[level], func(namespace string) bool {
			return firstOf(queued, namespace) < 0 || m.busy(namespace)
		})
		for _, text := range queued {
			if namespace, _, _ := strings.Cut(text, "/"); !slices.Contains(m.turns[level], namespace) && !m.busy(namespace) {
				m.turns[level] = append(m.turns[level], namespace)
			}
		}
	}
}

// busy reports whether the namespace is held back.
func (m *modelQueue) busy(namespace string) bool {
	return len(slices.DeleteFunc(slices.Collect(maps.Keys(m.inProgress)), func(text string) bool {
		return !strings.HasPrefix(text, namespace+"/")
	})) >= maxInProgress
}

// ready counts the requests that can be handed out.
func (m *modelQueue) ready() int {
	number := 0
	for _, text := range slices.Concat(m.full, m.low) {
		if namespace, _, _ := strings.Cut(text, "/"); !m.busy(namespace) {
			number++
		}
	}
	return number
}

func firstOf(queued []string, namespace string) int {
	return slices.IndexFunc(queued, func(text string) bool { return strings.HasPrefix(text, namespace+"/") })
}

func (m *modelQueue) get() (text string, full bool) {
	queued, turns, full := &m.full, &m.turns[0], true
	if len(m.turns[0]) == 0 {
		queued, turns, full = &m.low, &m.turns[1], false
	}
	namespace := (*turns)[0]
	*turns = append((*turns)[1:], namespace)
	at := firstOf(*queued, namespace)
	text = (*queued)[at]
	*queued = slices.Delete(*queued, at, at+1)
	m.inProgress[text] = true
	m.keepTurns()
	return text, full
}

func (m *modelQueue) done(text string) {
	delete(m.inProgress, text)
	if again := m.again[text]; again != "" {
		delete(m.again, text)
		m.add(text, again == "full")
	}
	m.keepTurns()
}

func TestFairQueueDoesWhatModelDoes(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		q, model := newTestQueue(t), &modelQueue{inProgress: map[string]bool{}, again: map[string]string{}}
		var inProgress []string
		for step := range 2000 {
			switch text := fmt.Sprintf("%c/%d", 'a'+rune(random.IntN(5)), random.IntN(6)); random.IntN(8) {
			case 0, 1, 2:
				q.AddWithOpts(lowPriority(0), requestOf(text))
				model.add(text, false)
			case 3:
				q.AddWithOpts(priorityqueue.AddOpts{Priority: new(random.IntN(2))}, requestOf(text))
				model.add(text, true)
			case 4, 5:
				if q.Len() == 0 {
					continue
				}
				request, priority, _ := q.GetWithPriority()
				if want, full := model.get(); request.String() != want || (priority == fullPriority) != full {
					t.Fatalf("seed %d, step %d: got %s with priority %d, want %s with full priority: %t", seed, step, request, priority, want, full)
				}
				inProgress = append(inProgress, request.String())
			default:
				if len(inProgress) == 0 {
					continue
				}
				at := random.IntN(len(inProgress))
				q.Done(requestOf(inProgress[at]))
				model.done(inProgress[at])
				inProgress = slices.Delete(inProgress, at, at+1)
			}
			if want := model.ready(); q.Len() != want {
				t.Fatalf("seed %d, step %d: %d requests are queued, want %d", seed, step, q.Len(), want)
			}
		}
		for _, text := range inProgress {
			q.Done(requestOf(text))
		}
		drain(q)
		isEmpty(t, q)
	}
}

// BenchmarkFairQueue adds and gets requests of a queue with many others.
func BenchmarkFairQueue(b *testing.B) {
	q := newFairQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)).(*fairQueue)
	b.Cleanup(q.ShutDown)
	for i := range 100_000 {
		q.Add(requestOf(fmt.Sprintf("n%d/%d", i%1000, i)))
	}
	for b.Loop() {
		request, _ := q.Get()
		q.Done(request)
		q.Add(request)
	}
}
