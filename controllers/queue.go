// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// queue lets code outside of watches enqueue items for a controller.
type queue[request comparable] struct {
	// ready, unless nil, blocks until the controller may start.
	ready func(ctx context.Context)

	mu    sync.Mutex
	inner workqueue.TypedRateLimitingInterface[request]
}

// source returns a source that connects the controller's queue.
func (q *queue[request]) source() source.TypedSyncingSource[request] {
	return queueSource[request]{q}
}

// add enqueues the item. Before the controller has started it does nothing, because the initial lists enqueue everything.
func (q *queue[request]) add(item request) {
	q.use(func(inner workqueue.TypedRateLimitingInterface[request]) { inner.Add(item) })
}

// use calls the function with the controller's queue, under the same condition.
func (q *queue[request]) use(enqueue func(inner workqueue.TypedRateLimitingInterface[request])) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inner != nil {
		enqueue(q.inner)
	}
}

type queueSource[request comparable] struct{ queue *queue[request] }

// Start connects the controller's queue.
func (s queueSource[request]) Start(_ context.Context, inner workqueue.TypedRateLimitingInterface[request]) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.inner = inner
	return nil
}

// WaitForSync delays the controller's start until it is ready.
func (s queueSource[request]) WaitForSync(ctx context.Context) error {
	if s.queue.ready != nil {
		s.queue.ready(ctx)
	}
	return nil
}
