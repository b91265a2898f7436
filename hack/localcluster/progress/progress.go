// SPDX-License-Identifier: Apache-2.0

// Package progress tells people on standard error what a command is doing.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Reporter writes to one stream. Its zero value is not usable; see Stderr.
type Reporter struct {
	stream   io.Writer
	terminal bool
	interval time.Duration
}

// Stderr reports to standard error: a running step is redrawn every second on a
// terminal, and repeated every 30 seconds elsewhere.
func Stderr() *Reporter {
	information, err := os.Stderr.Stat()
	terminal := err == nil && information.Mode()&os.ModeCharDevice != 0
	interval := 30 * time.Second
	if terminal {
		interval = time.Second
	}
	return &Reporter{stream: os.Stderr, terminal: terminal, interval: interval}
}

// Say writes one line.
func (r *Reporter) Say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(r.stream, format+"\n", arguments...)
}

// Step runs a step that may take long and reports how long it has been running.
func (r *Reporter) Step(name string, step func() error) error {
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- step() }()
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	if r.terminal {
		_, _ = fmt.Fprintf(r.stream, "%s …", name)
	}
	for {
		select {
		case err := <-done:
			r.finish(name, time.Since(begin), err)
			return err
		case <-ticker.C:
			r.tick(name, time.Since(begin))
		}
	}
}

func (r *Reporter) tick(name string, elapsed time.Duration) {
	if r.terminal {
		_, _ = fmt.Fprintf(r.stream, "\r%s … %d s", name, int(elapsed.Seconds()))
		return
	}
	r.Say("%s … %d s", name, int(elapsed.Seconds()))
}

func (r *Reporter) finish(name string, elapsed time.Duration, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	start := ""
	if r.terminal {
		start = "\r"
	}
	r.Say("%s%s: %s in %.1f s", start, name, outcome, elapsed.Seconds())
}
