// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// queue is a source that lets code outside of watches enqueue items for a controller.
type queue[request comparable] struct {
	// ready, unless nil, blocks until the controller may start.
	ready func(ctx context.Context)

	mu    sync.Mutex
	inner workqueue.TypedRateLimitingInterface[request]
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

// Start connects the controller's queue.
func (q *queue[request]) Start(_ context.Context, inner workqueue.TypedRateLimitingInterface[request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inner = inner
	return nil
}

// WaitForSync delays the controller's start until it is ready.
func (q *queue[request]) WaitForSync(ctx context.Context) error {
	if q.ready != nil {
		q.ready(ctx)
	}
	return nil
}
