//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often a state is looked at that no watch reports.
const pollInterval = 250 * time.Millisecond

// poll calls the check until it returns nil or the context ends, and then returns the check's last error.
func poll(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The error of a call that the deadline cut short says less than the one before it.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// Eventually polls until the check returns nil, and fails the test with the check's last error otherwise.
func (t *Test) Eventually(what string, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("Waited %s for: %s: %v", timeout, what, err)
	}
}

// EventuallySeen waits until the check of what the recorder has seen returns nil, and fails the test with the check's
// last error otherwise. The check runs after each change.
func (t *Test) EventuallySeen(what string, timeout time.Duration, check func(Seen) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := t.Recorder.wait(ctx, check); err != nil {
		t.Fatalf("Waited %s for: %s: %v", timeout, what, err)
	}
}

// SeenWithin reports whether the check of what the recorder has seen returns nil within the timeout. The check runs after
// each change.
func (t *Test) SeenWithin(timeout time.Duration, check func(Seen) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return t.Recorder.wait(ctx, check) == nil
}
