// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"net/http"

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
