// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"fmt"
	"net"
	"net/http"
)

// encrypted is a transport that refuses plain HTTP, except to loopback addresses or with plainHTTP. The registry client
// falls back to plain HTTP for private addresses and would send credentials with it.
type encrypted struct {
	inner     http.RoundTripper
	plainHTTP bool
}

func (e encrypted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !e.plainHTTP && !loopback(request.URL.Hostname()) {
		return nil, fmt.Errorf("refuse to speak plain HTTP with %s", request.URL.Host)
	}
	return e.inner.RoundTrip(request)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address := net.ParseIP(host)
	return address != nil && address.IsLoopback()
}
