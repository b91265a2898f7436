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

// sweptWatches number the events that concern a test, each watch of the operator for itself, and have one of them come late.
type sweptWatches struct {
	// splits has watches be read event by event. It is set before the operator starts.
	splits bool

	mu     sync.Mutex
	marks  []string       // an event that names one of them concerns the test
	counts map[string]int // events so far, by watch
	late   *lateEvent
}

// lateEvent is an event that comes late.
type lateEvent struct {
	watch  string
	number int // among those of the watch, from 1
	// lost has the connection end in place of the event, which the next connection brings. Otherwise the event waits, and with
	// it all that follow it on the watch, until over is closed.
	lost bool
	met  chan struct{} // closed when it is the event's turn
	over chan struct{}
}

func newLateEvent(watch string, number int, lost bool) *lateEvent {
	return &lateEvent{watch: watch, number: number, lost: lost, met: make(chan struct{}), over: make(chan struct{})}
}

// wasMet reports whether there was such an event.
func (l *lateEvent) wasMet() bool {
	select {
	case <-l.met:
		return true
	default:
		return false
	}
}

// begin has the events be numbered from now on.
func (s *sweptWatches) begin(late *lateEvent, marks ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks, s.counts, s.late = marks, map[string]int{}, late
}

// events returns how many there were so far, by watch.
func (s *sweptWatches) events() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// count numbers the event, and returns how it comes late, or nil.
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

// sweptBody is what a watch says, event by event.
type sweptBody struct {
	io.ReadCloser
	reader *bufio.Reader
	ctx    context.Context
	sweep  *sweptWatches
	watch  string
	framed bool   // events have their length before them, and otherwise a line each
	rest   []byte // of the event that is being read

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

// next reads one event as it is sent, its length included. What has been read of an event at an error is returned as well.
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

// wait has the event come when it is to.
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
