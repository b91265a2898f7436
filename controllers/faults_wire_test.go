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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var apiPaths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// callOf parses a request to the API server.
func callOf(r *http.Request) *request.RequestInfo {
	call, err := apiPaths.NewRequestInfo(r)
	if err != nil {
		panic(err)
	}
	return call
}

// isWatch reports whether the request opens a watch.
func isWatch(r *http.Request) bool { return callOf(r).Verb == "watch" }

// target names a call's resource without object names, like "pods/status"; "discovery" if there is none.
func target(call *request.RequestInfo) string {
	switch {
	case !call.IsResourceRequest:
		return "discovery"
	case call.Subresource != "":
		return call.Resource + "/" + call.Subresource
	}
	return call.Resource
}

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
	internalError fault = "500"
)

// answers are the faults after which the operator keeps running.
var answers = []fault{timedOut, answerLost, conflict, busy, internalError}

// wire is the operator's connection to the API server. Every write passes it.
type wire struct {
	next http.RoundTripper
	// choose returns the fault of a write by its number, from 1; nil means no faults.
	choose func(number int) fault
	// arrived is called after each write that the API server accepted.
	arrived func(resource string)

	number int
	sites  []string // of all writes, like "PATCH pods/status"
	met    []string // of writes with a fault
	done   []string // of successful writes
	last   fault    // the last one since it was cleared
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return w.next.RoundTrip(request)
	}
	w.number++
	call := callOf(request)
	site := request.Method + " " + target(call)
	w.sites = append(w.sites, site)
	f := noFault
	if w.choose != nil {
		f = w.choose(w.number)
	}
	if f != noFault {
		w.met, w.last = append(w.met, site), f
	}
	return f.apply(request, roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := w.next.RoundTrip(request)
		if err == nil && response.StatusCode < 300 {
			w.done = append(w.done, site)
			w.arrived(call.Resource)
		}
		return response, err
	}))
}

// apply applies the fault to the request and returns the operator's answer.
func (f fault) apply(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	switch f {
	case noFault:
		return next.RoundTrip(request)
	case timedOut:
		return nil, lost{}
	case answerLost, crashed:
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
		return nil, lost{}
	case conflict:
		return answer(request, http.StatusConflict, metav1.StatusReasonConflict)
	case busy:
		return answer(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case internalError:
		return answer(request, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	}
	panic("no answer for " + f)
}

// writeSites are all sites of writes that terminate sidecars or report on policies.
var writeSites = []string{
	"DELETE containerrecreaterequests",
	"PATCH pods",
	"PATCH pods/status",
	"POST containerrecreaterequests",
	"PUT clustersidecarterminationpolicies/status",
	"PUT sidecarterminationpolicies/status",
}

// lost is the error of a connection without an answer.
type lost struct{}

func (lost) Error() string   { return "injected: no answer in time" }
func (lost) Timeout() bool   { return true }
func (lost) Temporary() bool { return true }

func answer(request *http.Request, code int32, reason metav1.StatusReason) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: fmt.Sprintf("injected: %d", code),
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(code), Status: http.StatusText(int(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}, nil
}
