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
	mu    sync.Mutex
	inner workqueue.TypedRateLimitingInterface[request]
}

// source returns a source that takes hold of the controller's queue.
func (q *queue[request]) source() source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, inner workqueue.TypedRateLimitingInterface[request]) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inner = inner
		return nil
	})
}

// add asks for a reconcile. Before the controller has started it does nothing: the initial lists ask for everything.
func (q *queue[request]) add(item request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inner != nil {
		q.inner.Add(item)
	}
}
