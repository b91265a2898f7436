// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// heldServer answers events and other requests each when it is told to.
type heldServer struct {
	t                           *testing.T
	paced                       http.RoundTripper
	events, others              atomic.Int32 // came
	answerToEvent, answerOthers chan struct{}
	errors                      chan error
	stop                        context.CancelFunc // the operator is told to stop
}

func newHeldServer(t *testing.T) *heldServer {
	t.Helper()
	h := &heldServer{t: t, answerToEvent: make(chan struct{}), answerOthers: make(chan struct{}), errors: make(chan error, 100)}
	ctx, stop := context.WithCancel(t.Context())
	h.stop = stop
	h.paced = yieldEvents(ctx)(h)
	return h
}

func (h *heldServer) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.Contains(request.URL.Path, "/events") {
		h.events.Add(1)
		<-h.answerToEvent
	} else {
		h.others.Add(1)
		<-h.answerOthers
	}
	return httptest.NewRecorder().Result(), nil
}

// send sends a request in the background.
func (h *heldServer) send(ctx context.Context, method, path string) {
	go func() {
		response, err := h.paced.RoundTrip(httptest.NewRequestWithContext(ctx, method, path, nil))
		if err == nil {
			err = response.Body.Close()
		}
		h.errors <- err
	}()
}

// expect checks how many requests have come once nothing moves any more.
func (h *heldServer) expect(when string, events, others int32) {
	h.t.Helper()
	synctest.Wait()
	if h.events.Load() != events || h.others.Load() != others {
		h.t.Errorf("%s: %d events and %d others have come, want %d and %d", when, h.events.Load(), h.others.Load(), events, others)
	}
}

// answered checks that so many requests were answered without an error.
func (h *heldServer) answered(requests int) {
	h.t.Helper()
	for range requests {
		if err := <-h.errors; err != nil {
			h.t.Error(err)
		}
	}
}

const (
	eventsURL   = "/prefix/apis/events.k8s.io/v1/namespaces/batch/events"
	requestsURL = "/apis/apps.kruise.io/v1alpha1/namespaces/batch/containerrecreaterequests"
)

func TestEventsYieldToOtherWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("two requests", 0, 2)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.expect("two events after two requests", 0, 2)
		h.answerOthers <- struct{}{}
		h.expect("one request is answered", 0, 2)
		h.answerOthers <- struct{}{}
		h.expect("both requests are answered", 1, 2)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("a request while an event is sent", 1, 3)
		h.answerOthers <- struct{}{}
		h.expect("the request is answered", 1, 3)
		h.answerToEvent <- struct{}{}
		h.expect("the first event is answered", 2, 3)
		h.answerToEvent <- struct{}{}
		h.answered(5)
	})
}

func TestEventsDoNotWaitForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodGet, requestsURL)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.expect("an event during a watch", 1, 1)
		h.answerToEvent <- struct{}{}
		h.answerOthers <- struct{}{}
		h.answered(2)
	})
}

func TestEventsWaitForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.send(t.Context(), http.MethodPost, eventsURL)
		time.Sleep(longestEventDelay - time.Millisecond)
		h.expect("just before", 0, 1)
		time.Sleep(time.Millisecond)
		h.expect("then", 2, 1)
		h.answerToEvent <- struct{}{}
		h.answerToEvent <- struct{}{}
		h.answerOthers <- struct{}{}
		h.answered(3)
	})
}

func TestEventsThatAreGivenUpLeaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		ctx, giveUp := context.WithCancel(t.Context())
		h.send(ctx, http.MethodPost, eventsURL)
		h.send(ctx, http.MethodPost, eventsURL)
		synctest.Wait()
		giveUp()
		for range 2 {
			if err := <-h.errors; !errors.Is(err, context.Canceled) {
				t.Errorf("an event that is given up while it waits has the error %v", err)
			}
		}
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.answerOthers <- struct{}{}
		h.expect("the next event", 1, 1)
		h.answerToEvent <- struct{}{}
		h.answered(2)
	})
}

func TestRepetitionsOfAnEventDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.expect("an event after a request", 0, 1)
		h.send(t.Context(), http.MethodPatch, eventsURL+"/job-1.17")
		h.expect("a repetition", 1, 1)
		h.answerToEvent <- struct{}{}
		h.expect("the repetition is answered", 1, 1)
		h.answerOthers <- struct{}{}
		h.expect("the request is answered", 2, 1)
		h.answerToEvent <- struct{}{}
		h.answered(3)
	})
}

func TestEventsGoAtOnceWhenTheOperatorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldServer(t)
		h.send(t.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.expect("two events after a request", 0, 1)
		h.stop()
		h.expect("the operator is told to stop", 2, 1)
		h.send(t.Context(), http.MethodPost, eventsURL)
		h.expect("an event after that", 3, 1)
		for range 3 {
			h.answerToEvent <- struct{}{}
		}
		h.answerOthers <- struct{}{}
		h.answered(4)
	})
}
