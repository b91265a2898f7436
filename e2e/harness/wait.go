//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is the interval of checks of states that no watch reports.
const pollInterval = 250 * time.Millisecond

// poll runs the check until it returns nil or the context ends, and returns the check's last error.
func poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			last = err // an error caused by the deadline says less than the error before it
		}
		return err == nil, nil
	}); err != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	return nil
}

// Eventually polls until the check returns nil, and fails the test with the check's last error otherwise.
func (t *Test) Eventually(what string, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("Waited %s for %s: %v", timeout, what, err)
	}
}

// EventuallySeen runs the check after each recorded change until it returns nil, and fails the test with the check's last error
// otherwise.
func (t *Test) EventuallySeen(what string, timeout time.Duration, check func(Seen) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := t.Recorder.wait(ctx, check); err != nil {
		t.Fatalf("Waited %s for %s: %v", timeout, what, err)
	}
}

// SeenWithin runs the check after each recorded change, and reports whether it returns nil within the timeout.
func (t *Test) SeenWithin(timeout time.Duration, check func(Seen) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return t.Recorder.wait(ctx, check) == nil
}
