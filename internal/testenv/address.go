// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"testing"
)

// FreeAddress returns a loopback address that nobody listens on.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
