// SPDX-License-Identifier: Apache-2.0

// Package progress waits for conditions, and tells people on standard error what a command is doing.
package progress

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// repeatPeriod is the time between reports of a running step.
const repeatPeriod = 30 * time.Second

// Poll calls the condition at the interval until it holds, and returns the condition's last error when it does not within the timeout.
func Poll(parent context.Context, interval, timeout time.Duration, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(parent, interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := condition(ctx)
		// An error that the timeout causes says less than the error before it. The client's rate limiter fails ahead of the deadline.
		if last == nil || ctx.Err() == nil && !strings.Contains(fmt.Sprint(err), "would exceed context deadline") {
			last = err
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) && parent.Err() == nil {
		return fmt.Errorf("not within %s: %w", timeout, last)
	}
	return err
}

// Say writes one line.
func Say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", arguments...)
}

// Step runs a step that may take long. It reports how long it has been running, and how it ended.
func Step(name string, step func() error) error {
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- step() }()
	ticker := time.NewTicker(repeatPeriod)
	defer ticker.Stop()
	Say("%s …", name)
	for {
		select {
		case err := <-done:
			outcome := "done"
			if err != nil {
				outcome = "failed"
			}
			Say("%s: %s in %.1f s", name, outcome, time.Since(begin).Seconds())
			return err
		case <-ticker.C:
			Say("%s … %.0f s", name, time.Since(begin).Seconds())
		}
	}
}
