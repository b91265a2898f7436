// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// slowEvents is a sink in which each creation takes until the test receives it.
type slowEvents struct {
	events.EventSink
	created chan *eventsv1.Event
	running atomic.Int32
}

func (s *slowEvents) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.running.Add(1)
	s.created <- event
	s.running.Add(-1)
	return event, nil
}

func TestEventsAreCreatedInTurn(t *testing.T) {
	for name, test := range map[string]struct{ queue, events, atOnce int }{
		"one":                    {queue: 4, events: 1, atOnce: 1},
		"as many as may wait":    {queue: 4, events: 4, atOnce: 1},
		"two more than may wait": {queue: 4, events: 6, atOnce: 3},
		"far more than may wait": {queue: 1, events: 9, atOnce: 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &slowEvents{created: make(chan *eventsv1.Event)}
				sink := newEventSink(slow, test.queue)
				for range test.events {
					go func() {
						if _, err := sink.Create(t.Context(), &eventsv1.Event{}); err != nil {
							t.Error(err)
						}
					}()
				}
				synctest.Wait()
				if got := int(slow.running.Load()); got != test.atOnce {
					t.Errorf("%d events are created at once, want %d", got, test.atOnce)
				}
				for range test.events {
					<-slow.created
					synctest.Wait()
				}
				if slow.running.Load() != 0 || len(sink.queued) != 0 {
					t.Errorf("at the end %d events are created and %d queued", slow.running.Load(), len(sink.queued))
				}
			})
		})
	}
}
