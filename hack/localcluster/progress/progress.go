// SPDX-License-Identifier: Apache-2.0

// Package progress tells people on standard error what a command is doing.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"
)

// repeatPeriod is the time between reports of a running step.
const repeatPeriod = 30 * time.Second

// Reporter writes to one stream. Its zero value is not usable; see Stderr.
type Reporter struct{ stream io.Writer }

// Stderr reports to standard error.
func Stderr() *Reporter { return &Reporter{stream: os.Stderr} }

// Say writes one line.
func (r *Reporter) Say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(r.stream, format+"\n", arguments...)
}

// Step runs a step that may take long. It reports how long it has been running, and how it ended.
func (r *Reporter) Step(name string, step func() error) error {
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- step() }()
	ticker := time.NewTicker(repeatPeriod)
	defer ticker.Stop()
	r.Say("%s …", name)
	for {
		select {
		case err := <-done:
			outcome := "done"
			if err != nil {
				outcome = "failed"
			}
			r.Say("%s: %s in %.1f s", name, outcome, time.Since(begin).Seconds())
			return err
		case <-ticker.C:
			r.Say("%s … %.0f s", name, time.Since(begin).Seconds())
		}
	}
}
