// SPDX-License-Identifier: Apache-2.0

// Package eventtransport delays events, so that they do not compete with the requests that end sidecars.
package eventtransport

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/transport"
)

const (
	// eventsPath is part of the URL path of every request for events of the group events.k8s.io, and of no other request.
	// Leader election uses events of the core group. They are few, and are sent at once like any other write.
	eventsPath = "/apis/events.k8s.io/"
	// maxDelay bounds how long an event waits for other requests.
	maxDelay = 5 * time.Second
)

// Wrapper returns a transport wrapper that holds back new events until no other write is in flight, and sends them one at
// a time. It delays an event by at most maxDelay, and delays no other request. Once the context ends, events are sent at
// once: the context ends when the operator shuts down, and the recorder drops events that are still waiting at its end.
//
// The recorder of k8s.io/client-go/tools/events sends each event at once, from its own goroutine. A burst of events would
// take streams of the shared connection, and time of the API server, from the requests that end sidecars. Repeated events
// are patches and do not wait, because the recorder may send them while holding the lock that every new event needs.
func Wrapper(ctx context.Context) transport.WrapperFunc {
	idle := make(chan struct{})
	close(idle)
	shared := &otherWrites{idle: idle}
	sending := make(chan struct{}, 1)
	return func(next http.RoundTripper) http.RoundTripper {
		return &roundTripper{next, shared, sending, ctx.Done()}
	}
}

type roundTripper struct {
	next     http.RoundTripper
	others   *otherWrites
	sending  chan struct{} // holds one value while an event is sent
	stopping <-chan struct{}
}

// RoundTrip sends the request.
func (t *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	switch isEvent := strings.Contains(request.URL.Path, eventsPath); {
	case isEvent && request.Method == http.MethodPost:
		release, err := t.waitForTurn(request.Context())
		if err != nil {
			return nil, err
		}
		defer release()
	case !isEvent && request.Method != http.MethodGet:
		t.others.begin()
		defer t.others.end()
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets k8s.io/apimachinery/pkg/util/net unwrap the transport.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// waitForTurn waits until an event may be sent. The caller must call release after sending it. It fails when the context ends.
func (t *roundTripper) waitForTurn(ctx context.Context) (release func(), err error) {
	late := time.NewTimer(maxDelay)
	defer late.Stop()
	select {
	case t.sending <- struct{}{}:
		release = func() { <-t.sending }
	case <-late.C:
		return func() {}, nil
	case <-t.stopping:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-t.others.none():
		return release, nil
	case <-late.C:
		return release, nil
	case <-t.stopping:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}

// otherWrites counts writes in flight, events excluded.
type otherWrites struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed while count is 0
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

// none returns a channel that is closed once no write is in flight.
func (w *otherWrites) none() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}
