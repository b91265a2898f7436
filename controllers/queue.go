// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// queue lets other parts than watches ask a controller for a reconcile.
type queue[request comparable] struct {
	// ready, unless nil, returns when the controller may begin to work.
	ready func(ctx context.Context)

	mu    sync.Mutex
	inner workqueue.TypedRateLimitingInterface[request]
}

// source returns a source that takes hold of the controller's queue.
func (q *queue[request]) source() source.TypedSyncingSource[request] {
	return queueSource[request]{q}
}

// add asks for a reconcile. Before the controller has started it does nothing: the initial lists ask for everything.
func (q *queue[request]) add(item request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inner != nil {
		q.inner.Add(item)
	}
}

type queueSource[request comparable] struct{ queue *queue[request] }

// Start takes hold of the controller's queue.
func (s queueSource[request]) Start(_ context.Context, inner workqueue.TypedRateLimitingInterface[request]) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.inner = inner
	return nil
}

// WaitForSync keeps the controller from working until it may.
func (s queueSource[request]) WaitForSync(ctx context.Context) error {
	if s.queue.ready != nil {
		s.queue.ready(ctx)
	}
	return nil
}
