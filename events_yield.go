// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/transport"
)

const (
	// eventsPath is in the paths of the requests for events on pods, and of no others. The few of leader election are of the
	// core API: they go at once, like any other write.
	eventsPath = "/apis/events.k8s.io/"
	// longestEventDelay bounds how long an event waits for other requests.
	longestEventDelay = 5 * time.Second
)

// yieldEvents returns a wrapper that has new events wait until no other write is on its way, and sends one at a time. After
// longestEventDelay an event goes in any case. No other request is delayed. When the context ends, which is when the operator
// is told to stop, every event goes at once: the recorder gives up those that wait when all else has stopped.
//
// The recorder of k8s.io/client-go/tools/events sends each event at once from a goroutine of its own. Those of a burst would
// take the streams of the one connection, and the API server's time, from the requests that end sidecars. Repetitions of an
// event are patches, which do not wait: the recorder sends some of them under the lock that every new event needs.
func yieldEvents(ctx context.Context) transport.WrapperFunc {
	idle := make(chan struct{})
	close(idle)
	shared := &otherWrites{idle: idle}
	sending := make(chan struct{}, 1)
	return func(next http.RoundTripper) http.RoundTripper {
		return &eventsYield{next, shared, sending, ctx.Done()}
	}
}

type eventsYield struct {
	next     http.RoundTripper
	others   *otherWrites
	sending  chan struct{}
	stopping <-chan struct{}
}

// RoundTrip sends the request.
func (y *eventsYield) RoundTrip(request *http.Request) (*http.Response, error) {
	switch isEvent := strings.Contains(request.URL.Path, eventsPath); {
	case isEvent && request.Method == http.MethodPost:
		release, err := y.turn(request.Context())
		if err != nil {
			return nil, err
		}
		defer release()
	case !isEvent && request.Method != http.MethodGet:
		y.others.begin()
		defer y.others.end()
	}
	return y.next.RoundTrip(request)
}

// WrappedRoundTripper lets k8s.io/apimachinery/pkg/util/net find what is wrapped.
func (y *eventsYield) WrappedRoundTripper() http.RoundTripper { return y.next }

// turn waits until an event may be sent. The caller calls release when it has been. The error is that of the context.
func (y *eventsYield) turn(ctx context.Context) (release func(), err error) {
	late := time.NewTimer(longestEventDelay)
	defer late.Stop()
	select {
	case y.sending <- struct{}{}:
		release = func() { <-y.sending }
	case <-late.C:
		return func() {}, nil
	case <-y.stopping:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-y.others.none():
		return release, nil
	case <-late.C:
		return release, nil
	case <-y.stopping:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}

// otherWrites counts the writes on their way that are no events.
type otherWrites struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed while there are none
}

func (w *otherWrites) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == 0 {
		w.idle = make(chan struct{})
	}
	w.count++
}

func (w *otherWrites) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if w.count == 0 {
		close(w.idle)
	}
}

// none is closed once there are none.
func (w *otherWrites) none() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}
