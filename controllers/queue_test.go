// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func TestQueueAcceptsItemsAfterStart(t *testing.T) {
	var q queue[string]
	q.add("too early; the initial lists enqueue it")
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	t.Cleanup(inner.ShutDown)
	if err := q.Start(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	q.add("in time")
	q.add("in time")
	if got := inner.Len(); got != 1 {
		t.Fatalf("%d items are queued, want 1", got)
	}
	if got, _ := inner.Get(); got != "in time" {
		t.Errorf("got %q", got)
	}
}
