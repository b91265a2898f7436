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

// Eventually polls until the check returns nil, and fails the test with the last error after a timeout.
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.WithoutCancel(tb.Context()), interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err // an error caused by the timeout says nothing
		}
		return err == nil, nil
	})
	if err != nil {
		tb.Fatalf("timed out waiting: %s: %v", what, last)
	}
}
