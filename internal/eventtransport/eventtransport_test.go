// SPDX-License-Identifier: Apache-2.0

package eventtransport

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

// heldServer holds each request until the test releases an answer.
type heldServer struct {
	*testing.T
	wrapped                     http.RoundTripper
	events, others              atomic.Int32 // received
	answerToEvent, answerOthers chan struct{}
	errors                      chan error
	stop                        context.CancelFunc // shuts the operator down
}

// withHeldServer runs the test with virtual time. The test fails if it leaves a goroutine running.
func withHeldServer(t *testing.T, test func(h *heldServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &heldServer{T: t, answerToEvent: make(chan struct{}), answerOthers: make(chan struct{}), errors: make(chan error, 100)}
		ctx, stop := context.WithCancel(t.Context())
		h.stop, h.wrapped = stop, Wrapper(ctx)(h)
		test(h)
	})
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
		response, err := h.wrapped.RoundTrip(httptest.NewRequestWithContext(ctx, method, path, nil))
		if err == nil {
			err = response.Body.Close()
		}
		h.errors <- err
	}()
}

// expect checks how many requests the server has received once every goroutine is blocked.
func (h *heldServer) expect(when string, events, others int32) {
	h.Helper()
	synctest.Wait()
	if h.events.Load() != events || h.others.Load() != others {
		h.Errorf("%s: got %d events and %d others, want %d and %d", when, h.events.Load(), h.others.Load(), events, others)
	}
}

// answered checks that the number of requests was answered without an error.
func (h *heldServer) answered(requests int) {
	h.Helper()
	for range requests {
		if err := <-h.errors; err != nil {
			h.Error(err)
		}
	}
}

const (
	eventsURL   = "/prefix/apis/events.k8s.io/v1/namespaces/batch/events"
	requestsURL = "/apis/apps.kruise.io/v1alpha1/namespaces/batch/containerrecreaterequests"
)

func TestEventsWaitForOtherWrites(t *testing.T) {
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.expect("two requests", 0, 2)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.expect("two events after two requests", 0, 2)
		h.answerOthers <- struct{}{}
		h.expect("one request is answered", 0, 2)
		h.answerOthers <- struct{}{}
		h.expect("both requests are answered", 1, 2)
		h.send(h.Context(), http.MethodPost, requestsURL)
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
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodGet, requestsURL)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.expect("an event during a watch", 1, 1)
		h.answerToEvent <- struct{}{}
		h.answerOthers <- struct{}{}
		h.answered(2)
	})
}

func TestEventsWaitNoLongerThanMaxDelay(t *testing.T) {
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.send(h.Context(), http.MethodPost, eventsURL)
		time.Sleep(maxDelay - time.Millisecond)
		h.expect("just before the limit", 0, 1)
		time.Sleep(time.Millisecond)
		h.expect("at the limit", 2, 1)
		h.answerToEvent <- struct{}{}
		h.answerToEvent <- struct{}{}
		h.answerOthers <- struct{}{}
		h.answered(3)
	})
}

func TestCanceledEventsReleaseTheirTurn(t *testing.T) {
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		ctx, cancel := context.WithCancel(h.Context())
		h.send(ctx, http.MethodPost, eventsURL)
		h.send(ctx, http.MethodPost, eventsURL)
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-h.errors; !errors.Is(err, context.Canceled) {
				h.Errorf("a canceled event has the error %v", err)
			}
		}
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.answerOthers <- struct{}{}
		h.expect("the next event", 1, 1)
		h.answerToEvent <- struct{}{}
		h.answered(2)
	})
}

func TestRepeatedEventsDoNotWait(t *testing.T) {
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.expect("an event after a request", 0, 1)
		h.send(h.Context(), http.MethodPatch, eventsURL+"/job-1.17")
		h.expect("a repeated event", 1, 1)
		h.answerToEvent <- struct{}{}
		h.expect("the repeated event is answered", 1, 1)
		h.answerOthers <- struct{}{}
		h.expect("the request is answered", 2, 1)
		h.answerToEvent <- struct{}{}
		h.answered(3)
	})
}

func TestEventsAreSentAtOnceOnShutdown(t *testing.T) {
	withHeldServer(t, func(h *heldServer) {
		h.send(h.Context(), http.MethodPost, requestsURL)
		h.expect("a request", 0, 1)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.expect("two events after a request", 0, 1)
		h.stop()
		h.expect("shutdown", 2, 1)
		h.send(h.Context(), http.MethodPost, eventsURL)
		h.expect("an event after shutdown", 3, 1)
		for range 3 {
			h.answerToEvent <- struct{}{}
		}
		h.answerOthers <- struct{}{}
		h.answered(4)
	})
}
