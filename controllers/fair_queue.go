// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fullPriority is the priority of requests that nobody gave one.
const fullPriority = 0

// maxInProgress is how many pods of one namespace are reconciled at once. Others would find a busy API server, since each pod in progress
// has at most one write in flight. 4 of them saturate two CPUs (docs/performance.md), and make 400 writes a second that take 10 ms each.
const maxInProgress = 4

// fairQueue is the pod controller's queue. A request of low priority waits for all of full priority. Within a priority the namespaces take
// turns, and each has at most maxInProgress requests in progress, so that many pods of one namespace do not delay the pods of another.
type fairQueue struct {
	// Typed queues each request once, and holds back those that are being reconciled.
	*workqueue.Typed[reconcile.Request]
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	// delayed are the requests to add later, by priority.
	delayed [2]workqueue.TypedDelayingInterface[reconcile.Request]

	mu      sync.Mutex // held before the lock of Typed, which is never waited for long: Get is called when the order has a request
	changed *sync.Cond // of order, or shut down
	order   turns
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &fairQueue{}

func newFairQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := &fairQueue{limiter: limiter, order: newTurns()}
	q.changed = sync.NewCond(&q.mu)
	q.Typed = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: &q.order})
	for level, priority := range priorities {
		q.delayed[level] = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name: name, Queue: withPriority{q.Typed, func(request reconcile.Request) { q.add(request, priority) }},
		})
	}
	return q
}

// withPriority is a queue that adds with a priority.
type withPriority struct {
	*workqueue.Typed[reconcile.Request]
	add func(reconcile.Request)
}

func (w withPriority) Add(request reconcile.Request) { w.add(request) }

// AddWithOpts implements priorityqueue.PriorityQueue. A request that is queued with low priority moves up when it is added with full
// priority, and never down.
func (q *fairQueue) AddWithOpts(options priorityqueue.AddOpts, requests ...reconcile.Request) {
	priority := fullPriority
	if options.Priority != nil {
		priority = *options.Priority
	}
	for _, request := range requests {
		after := options.After
		if options.RateLimited {
			limited := q.limiter.When(request)
			if after == 0 || limited < after {
				after = limited
			}
		}
		if after > 0 {
			q.delayed[levelOf(priority)].AddAfter(request, after)
		} else {
			q.add(request, priority)
		}
	}
}

func (q *fairQueue) add(request reconcile.Request, priority int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if levelOf(priority) == levelOf(fullPriority) {
		q.order.urgent[request] = true
	}
	q.Typed.Add(request)
	q.changed.Signal()
}

// GetWithPriority implements priorityqueue.PriorityQueue. After ShutDown it hands nothing out.
func (q *fairQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.Len() == 0 && !q.ShuttingDown() {
		q.changed.Wait()
	}
	request, shutdown = q.Typed.Get()
	return request, q.order.popped, shutdown || q.ShuttingDown()
}

// Done implements workqueue.TypedInterface. It queues a request that was added in the meantime.
func (q *fairQueue) Done(request reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Typed.Done(request)
	q.order.done(request.Namespace)
	q.changed.Signal()
}

// ShutDown implements workqueue.TypedInterface.
func (q *fairQueue) ShutDown() {
	for _, delayed := range q.delayed {
		delayed.ShutDown() // and Typed
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// The other methods of priorityqueue.PriorityQueue.

func (q *fairQueue) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }
func (q *fairQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, request)
}
func (q *fairQueue) AddRateLimited(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request)
}
func (q *fairQueue) Get() (request reconcile.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}
func (q *fairQueue) Forget(request reconcile.Request)          { q.limiter.Forget(request) }
func (q *fairQueue) NumRequeues(request reconcile.Request) int { return q.limiter.NumRequeues(request) }

// priorities are the priorities of the levels, the first level first.
var priorities = [...]int{fullPriority, handler.LowPriority}

// levelOf returns the level of the priority.
func levelOf(priority int) int {
	if priority < fullPriority {
		return 1
	}
	return 0
}

// turns orders the queued requests, each operation in constant time. It implements workqueue.Queue.
type turns struct {
	levels [len(priorities)]level
	// places are where the requests are queued.
	places map[reconcile.Request]place
	// urgent are requests to push to the first level. Those that are being reconciled wait for their push.
	urgent map[reconcile.Request]bool
	// inProgress counts the popped requests that are not done, by namespace.
	inProgress map[string]int
	// ready counts the queued requests of the namespaces that have a turn.
	ready int
	// popped is the priority of the request that Pop returned last.
	popped int
}

// level has the requests of one priority.
type level struct {
	next       *list.List // the namespaces in the order of their turns, each a *namespaceTurn
	namespaces map[string]*namespaceTurn
}

// namespaceTurn is a namespace with its requests.
type namespaceTurn struct {
	*list.List
	turn *list.Element // of next, or nil while the namespace has maxInProgress
}

type place struct {
	level   int
	request *list.Element // of the namespace's list
}

func newTurns() turns {
	t := turns{places: map[reconcile.Request]place{}, urgent: map[reconcile.Request]bool{}, inProgress: map[string]int{}}
	for i := range t.levels {
		t.levels[i] = level{list.New(), map[string]*namespaceTurn{}}
	}
	return t
}

// Push queues the request behind the others of its namespace. A new namespace has the last turn.
func (t *turns) Push(request reconcile.Request) {
	at := levelOf(priorities[1])
	if t.urgent[request] {
		at = levelOf(fullPriority)
		delete(t.urgent, request)
	}
	level := &t.levels[at]
	namespace := level.namespaces[request.Namespace]
	if namespace == nil {
		namespace = &namespaceTurn{List: list.New()}
		level.namespaces[request.Namespace] = namespace
		if t.inProgress[request.Namespace] < maxInProgress {
			namespace.turn = level.next.PushBack(namespace)
		}
	}
	if namespace.turn != nil {
		t.ready++
	}
	t.places[request] = place{at, namespace.PushBack(request)}
}

// Touch moves a queued request up.
func (t *turns) Touch(request reconcile.Request) {
	if !t.urgent[request] {
		return
	}
	if t.places[request].level == levelOf(fullPriority) {
		delete(t.urgent, request)
		return
	}
	t.remove(request)
	t.Push(request)
}

// Pop returns the first request of the namespace whose turn it is.
func (t *turns) Pop() reconcile.Request {
	at := 0
	for t.levels[at].next.Len() == 0 {
		at++
	}
	next := t.levels[at].next
	namespace := next.Front()
	request := namespace.Value.(*namespaceTurn).Front().Value.(reconcile.Request)
	next.MoveToBack(namespace)
	t.remove(request)
	t.popped = priorities[at]
	t.inProgress[request.Namespace]++
	if t.inProgress[request.Namespace] == maxInProgress {
		t.holdBack(request.Namespace)
	}
	return request
}

// holdBack takes the namespace's turns away.
func (t *turns) holdBack(name string) {
	for _, level := range t.levels {
		if namespace := level.namespaces[name]; namespace != nil {
			level.next.Remove(namespace.turn)
			namespace.turn = nil
			t.ready -= namespace.Len()
		}
	}
}

// done counts a request of the namespace as done, and gives a namespace that was held back the last turns.
func (t *turns) done(name string) {
	t.inProgress[name]--
	switch t.inProgress[name] {
	case 0:
		delete(t.inProgress, name)
	case maxInProgress - 1:
		for _, level := range t.levels {
			if namespace := level.namespaces[name]; namespace != nil {
				namespace.turn = level.next.PushBack(namespace)
				t.ready += namespace.Len()
			}
		}
	}
}

// Len implements workqueue.Queue. Requests of a namespace that is held back do not count.
func (t *turns) Len() int { return t.ready }

// remove removes a queued request, and its namespace with the last one.
func (t *turns) remove(request reconcile.Request) {
	place := t.places[request]
	delete(t.places, request)
	level := &t.levels[place.level]
	namespace := level.namespaces[request.Namespace]
	namespace.Remove(place.request)
	if namespace.turn != nil {
		t.ready--
	}
	if namespace.Len() > 0 {
		return
	}
	delete(level.namespaces, request.Namespace)
	if namespace.turn != nil {
		level.next.Remove(namespace.turn)
	}
}
