// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports from firstPort are outside of Linux's ephemeral port range (net.ipv4.ip_local_port_range), so that no connection takes
// the port of a process while it restarts.
const firstPort, ports = 20000, 10000

// FreeAddress returns an unused loopback address.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	var err error
	for range 100 {
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))); err == nil {
			_ = listener.Close()
			return listener.Addr().String()
		}
	}
	tb.Fatalf("find a free address: %v", err)
	return ""
}
