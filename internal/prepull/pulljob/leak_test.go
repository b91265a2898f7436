// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine running.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
