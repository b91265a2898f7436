// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	directory := t.TempDir()
	path := func(name string) string { return filepath.Join(directory, name) }
	replacements := Replacements{}
	if err := replacements.AddClock(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	argument, err := replacements.Write(path("overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	const program = "package main\n\nimport \"time\"\n\nfunc main() { println(time.Now().Unix()) }\n"
	if err := os.WriteFile(path("main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", argument, "-o", path("program"), "main.go")
	build.Dir = directory
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	for _, offset := range []time.Duration{-50 * time.Minute, 0, 50 * time.Minute} {
		run := exec.CommandContext(t.Context(), path("program"))
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
