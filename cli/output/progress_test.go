// SPDX-License-Identifier: Apache-2.0

package output

import (
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var terminal strings.Builder
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := &Progress{w: &terminal, now: func() time.Time { return now }}
	for _, step := range []struct {
		name  string
		after time.Duration
		do    func()
		want  string
	}{
		{"first step", 0, func() { p.Step("pods") }, ""},
		{"before the delay", progressDelay - 1, func() { p.Step("pods") }, ""},
		{"after the delay", 1, func() { p.Step("pods") }, clearLine + "checked 3 pods"},
		{"before the interval", progressInterval - 1, func() { p.Step("pods") }, ""},
		{"after the interval", 1, func() { p.Step("pods") }, clearLine + "checked 5 pods"},
		{"clear", 0, p.Clear, clearLine},
		{"clear again", 0, p.Clear, ""},
		{"a new count", time.Hour, func() { p.Step("pods") }, ""},
		{"after the delay of the new count", progressDelay, func() { p.Step("pods") }, clearLine + "checked 2 pods"},
	} {
		terminal.Reset()
		now = now.Add(step.after)
		step.do()
		if got := terminal.String(); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
}

func TestNoProgressWithoutTerminal(t *testing.T) {
	var file strings.Builder
	p := NewProgress(&file, func() time.Time {
		t.Error("the time was read")
		return time.Time{}
	})
	if p != nil {
		t.Fatal("there is progress")
	}
	p.Step("pods")
	p.Clear()
	if file.Len() > 0 {
		t.Errorf("got %q", file.String())
	}
}
