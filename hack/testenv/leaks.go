// SPDX-License-Identifier: Apache-2.0

package testenv

import "go.uber.org/goleak"

// KeptConnections ignores goroutines of idle keep-alive connections of the test's clients and servers, which are not leaks.
func KeptConnections() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*http2serverConn).readFrames"),
	}
}
