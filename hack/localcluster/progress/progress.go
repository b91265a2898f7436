// SPDX-License-Identifier: Apache-2.0

// Package progress tells people on standard error what a command is doing.
package progress

import (
	"fmt"
	"os"
	"time"
)

// repeatPeriod is the time between reports of a running step.
const repeatPeriod = 30 * time.Second

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
