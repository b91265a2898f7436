// SPDX-License-Identifier: Apache-2.0

package check

import "testing"

func TestNetworkWithoutEarlyPhases(t *testing.T) {
	c := &checker{} // without a client, so that a read would panic
	if err := c.network(t.Context()); err != nil || len(c.checks) > 0 {
		t.Errorf("got %v, %v", c.checks, err)
	}
}
