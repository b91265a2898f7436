// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// sweptWatches number the events about a test per watch of the operator, and delay one of them.
type sweptWatches struct {
	// splits makes watches deliver event by event. It is set before the operator starts.
	splits bool

	mu     sync.Mutex
	marks  []string       // an event that contains one of them is about the test
	counts map[string]int // events so far, by watch
	late   *lateEvent
}

// lateEvent is a delayed event.
type lateEvent struct {
	watch  string
	number int // among the events of the watch, from 1
	// lost closes the connection instead of the event, which the next connection delivers. Otherwise the event and all that follow it
	// on the watch wait until over is closed.
	lost bool
	met  chan struct{} // closed when the event arrives
	over chan struct{}
}

func newLateEvent(watch string, number int, lost bool) *lateEvent {
	return &lateEvent{watch: watch, number: number, lost: lost, met: make(chan struct{}), over: make(chan struct{})}
}

// wasMet reports whether the event arrived.
func (l *lateEvent) wasMet() bool {
	select {
	case <-l.met:
		return true
	default:
		return false
	}
}

// begin starts the numbering of events.
func (s *sweptWatches) begin(late *lateEvent, marks ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks, s.counts, s.late = marks, map[string]int{}, late
}

// events returns the number of events so far, by watch.
func (s *sweptWatches) events() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// count numbers the event and returns its delay, or nil.
func (s *sweptWatches) count(watch string, event []byte) *lateEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.marks, func(mark string) bool { return bytes.Contains(event, []byte(mark)) }) {
		return nil
	}
	s.counts[watch]++
	if s.late == nil || s.late.watch != watch || s.late.number != s.counts[watch] {
		return nil
	}
	return s.late
}

func (s *sweptWatches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || !s.splits || !isWatch(r) {
			return response, err
		}
		call := callOf(r)
		response.Body = &sweptBody{
			ReadCloser: response.Body, reader: bufio.NewReader(response.Body), ctx: r.Context(), sweep: s, closed: make(chan struct{}),
			watch:  strings.TrimSpace(call.Resource + " " + call.FieldSelector + call.LabelSelector),
			framed: strings.Contains(response.Header.Get("Content-Type"), "protobuf"),
		}
		return response, nil
	})
}

// sweptBody is the body of a watch, delivered event by event.
type sweptBody struct {
	io.ReadCloser
	reader *bufio.Reader
	ctx    context.Context
	sweep  *sweptWatches
	watch  string
	framed bool   // events have a length prefix; otherwise one line each
	rest   []byte // of the current event

	close  sync.Once
	closed chan struct{}
}

func (b *sweptBody) Close() error {
	b.close.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

func (b *sweptBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		event, err := b.next()
		if len(event) == 0 {
			return 0, err
		}
		if err := b.wait(event); err != nil {
			return 0, err
		}
		b.rest = event
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// next reads one event including its length. After an error it returns the bytes read so far, too.
func (b *sweptBody) next() ([]byte, error) {
	if !b.framed {
		return b.reader.ReadBytes('\n')
	}
	const header = 4
	event := make([]byte, header)
	if _, err := io.ReadFull(b.reader, event); err != nil {
		return nil, err
	}
	event = append(event, make([]byte, binary.BigEndian.Uint32(event))...)
	n, err := io.ReadFull(b.reader, event[header:])
	return event[:header+n], err
}

// wait delays the event if it is the late one.
func (b *sweptBody) wait(event []byte) error {
	late := b.sweep.count(b.watch, event)
	if late == nil {
		return nil
	}
	close(late.met)
	if late.lost {
		return io.ErrUnexpectedEOF
	}
	select {
	case <-late.over:
		return nil
	case <-b.closed:
		return io.ErrClosedPipe
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}
