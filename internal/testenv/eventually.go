// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	interval = 20 * time.Millisecond
	timeout  = time.Minute
)

// Eventually waits until the check has no error any more, and ends the test with the last error if that takes too long.
func Eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err // what the end of the time does to a call says nothing
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("waited in vain until %s: %v", what, last)
	}
}
