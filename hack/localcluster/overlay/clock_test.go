// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	directory := t.TempDir()
	replacements := Replacements{}
	if err := replacements.AddClock(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	program := build(t, directory, replacements, "package main\n\nimport \"time\"\n\nfunc main() { println(time.Now().Unix()) }\n")
	for _, offset := range []time.Duration{-50 * time.Minute, 0, 50 * time.Minute} {
		run := exec.CommandContext(t.Context(), program)
		run.Env = []string{ClockOffset(offset)}
		before := time.Now().Truncate(time.Second)
		output, err := run.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseInt(strings.TrimSpace(string(output)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Unix(seconds, 0).Add(-offset); got.Before(before) || got.After(time.Now()) {
			t.Errorf("with offset %s the clock is %s, want between %s and now", offset, time.Unix(seconds, 0), before.Add(offset))
		}
	}
}
