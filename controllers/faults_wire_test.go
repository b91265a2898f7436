// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is what goes wrong with one write.
type fault string

const (
	noFault fault = ""
	// timedOut never reaches the API server.
	timedOut fault = "time-out before the server"
	// answerLost reaches the API server, but its answer is lost.
	answerLost fault = "answer lost"
	// crashed is answerLost, after which the operator restarts.
	crashed fault = "crash after the write"
	// The others are answers of an API server that did nothing.
	conflict      fault = "409"
	busy          fault = "429"
	busyWithHint  fault = "429 with Retry-After"
	internalError fault = "500"
)

// answers are the faults after which the operator keeps running.
var answers = []fault{timedOut, answerLost, conflict, busy, busyWithHint, internalError}

// harmful are the answers that reach the operator. The client retries an answer with Retry-After by itself.
func (f fault) harmful() bool { return f != noFault && f != busyWithHint }

// wire is the operator's connection to the API server. Every write passes it.
type wire struct {
	next http.RoundTripper
	// choose returns the fault of a write by its number, from 1, and its site, like "PATCH pods/status".
	choose func(number int, site string) fault
	// arrived is called after each write that the API server accepted.
	arrived func(resource string)
	// change, unless nil, modifies a write.
	change func(*http.Request)

	number int
	sites  []string // of all writes
	met    []string // of writes with a fault
	done   []string // of successful writes
	last   fault    // the last one since it was cleared
	faults int
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return w.next.RoundTrip(request)
	}
	w.number++
	site := siteOf(request)
	w.sites = append(w.sites, site)
	f := w.choose(w.number, site)
	if f != noFault {
		w.faults++
		w.met = append(w.met, site)
	}
	if f.harmful() {
		w.last = f
	}
	return f.apply(request, roundTripper(func(request *http.Request) (*http.Response, error) { return w.send(request, site) }))
}

// send sends a write and records the result.
func (w *wire) send(request *http.Request, site string) (*http.Response, error) {
	if w.change != nil {
		w.change(request)
	}
	response, err := w.next.RoundTrip(request)
	if err == nil && response.StatusCode < 300 {
		w.done = append(w.done, site)
		w.arrived(callOf(request).Resource)
	}
	return response, err
}

// apply applies the fault to the request and returns the operator's answer.
func (f fault) apply(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	switch f {
	case noFault:
		return next.RoundTrip(request)
	case answerLost, crashed:
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
		return nil, lost{}
	default:
		return fail(request, f)
	}
}

// fail is the answer to a call that never reaches the API server.
func fail(request *http.Request, f fault) (*http.Response, error) {
	switch f {
	case timedOut:
		return nil, lost{}
	case conflict:
		return answer(request, http.StatusConflict, metav1.StatusReasonConflict, nil)
	case busy:
		return answer(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, nil)
	case busyWithHint:
		return answer(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, http.Header{"Retry-After": {"0"}})
	case internalError:
		return answer(request, http.StatusInternalServerError, metav1.StatusReasonInternalError, nil)
	}
	panic("no answer for " + f)
}

// writeSites are all sites of writes that terminate sidecars or report on policies.
var writeSites = []string{
	"DELETE containerrecreaterequests",
	"PATCH pods",
	"PATCH pods/status",
	releaseOfPhase,
	"POST containerrecreaterequests",
	"PUT clustersidecarterminationpolicies/status",
	"PUT sidecarterminationpolicies/status",
}

// releaseOfPhase is the site of the release of a phase guard.
const releaseOfPhase = "PATCH pods/status without a status"

// writesNoStatus reports whether the body of the request has no status.
func writesNoStatus(request *http.Request) bool {
	if request.GetBody == nil {
		return false
	}
	body, err := request.GetBody()
	if err != nil {
		return false
	}
	defer func() { _ = body.Close() }()
	var fields map[string]json.RawMessage
	if err := json.NewDecoder(body).Decode(&fields); err != nil {
		return false
	}
	_, there := fields["status"]
	return !there
}

// siteOf names the write without object names.
func siteOf(request *http.Request) string {
	site := request.Method + " " + target(callOf(request))
	if site == "PATCH pods/status" && writesNoStatus(request) {
		return releaseOfPhase
	}
	return site
}

// lost is the error of a connection without an answer.
type lost struct{}

func (lost) Error() string   { return "injected: no answer in time" }
func (lost) Timeout() bool   { return true }
func (lost) Temporary() bool { return true }

func answer(request *http.Request, code int32, reason metav1.StatusReason, header http.Header) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: fmt.Sprintf("injected: %d", code),
	})
	if err != nil {
		return nil, err
	}
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return &http.Response{
		StatusCode: int(code), Status: http.StatusText(int(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}, nil
}
