// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// progressDelay is how long a command runs before it shows progress, and progressInterval the time between two updates.
	progressDelay    = time.Second
	progressInterval = 200 * time.Millisecond
)

// clearLine moves to the start of a line on a terminal and clears it.
const clearLine = "\r\x1b[K"

// Progress shows on a terminal how much of its work a command has done. A nil Progress shows nothing.
type Progress struct {
	w     io.Writer
	now   func() time.Time
	count int
	// next is the earliest time of the next update. visible is true while the terminal shows one.
	next    time.Time
	visible bool
}

// NewProgress returns nil if the writer is not a terminal that can clear a line.
func NewProgress(w io.Writer, now func() time.Time) *Progress {
	if !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Progress{w: w, now: now}
}

// Step counts one of the items, such as workloads, and shows the count from time to time.
func (p *Progress) Step(items string) {
	if p == nil {
		return
	}
	now := p.now()
	if p.count == 0 {
		p.next = now.Add(progressDelay)
	}
	p.count++
	if now.Before(p.next) {
		return
	}
	p.next, p.visible = now.Add(progressInterval), true
	_, _ = fmt.Fprintf(p.w, "%schecked %d %s", clearLine, p.count, items)
}

// Clear removes the count from the terminal and starts again at 0. Call it before other output.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	if p.visible {
		_, _ = io.WriteString(p.w, clearLine)
	}
	p.count, p.visible = 0, false
}
