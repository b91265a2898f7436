// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAlive(t *testing.T) {
	recorded := Identity{PID: 7, StartTime: 1234}
	for name, test := range map[string]struct {
		pid       int
		state     string
		threads   int
		startTime int
		want      bool
	}{
		"the same process":             {7, "S", 1, 1234, true},
		"the pid was recycled":         {7, "S", 1, 1235, false},
		"no process has the number":    {8, "S", 1, 1234, false},
		"the process is a zombie":      {7, "Z", 1, 1234, false},
		"a killed process has threads": {7, "Z", 2, 1234, true},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			directory := filepath.Join(mount, strconv.Itoa(test.pid))
			if err := os.Mkdir(directory, 0o755); err != nil {
				t.Fatal(err)
			}
			// See proc_pid_stat(5): the state is field 3, and the start time field 22.
			stat := fmt.Sprintf("%d (a) %s%s %d 0 %d%s\n", test.pid, test.state, strings.Repeat(" 0", 16), test.threads, test.startTime, strings.Repeat(" 0", 30))
			if err := os.WriteFile(filepath.Join(directory, "stat"), []byte(stat), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := recorded.aliveIn(mount); got != test.want {
				t.Errorf("alive is %t, want %t", got, test.want)
			}
		})
	}
	if (Identity{}).Alive() {
		t.Error("nothing is alive")
	}
}

// startShell starts a shell with the arguments of -c, and kills it when the test ends.
func startShell(t *testing.T, cgroup string, arguments ...string) Identity {
	t.Helper()
	log := filepath.Join(t.TempDir(), "logs", "sh.log")
	identity, err := Start(Command{Path: "/bin/sh", Arguments: append([]string{"-c"}, arguments...), Cgroup: cgroup, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Stop(context.WithoutCancel(t.Context()), identity, 0) })
	return identity
}

func TestStartAndStop(t *testing.T) {
	for name, script := range map[string]string{
		"ends when asked":    "exec sleep 1000",
		"must be killed too": `trap "" TERM; while :; do read -r line < /dev/zero; done`,
	} {
		t.Run(name, func(t *testing.T) {
			identity := startShell(t, "", script)
			earlier := identity
			earlier.StartTime--
			if err := Stop(t.Context(), earlier, 0); err != nil || !identity.Alive() {
				t.Errorf("an earlier process that had its pid was stopped: %v", err)
			}
			if err := Stop(t.Context(), identity, 100*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if identity.Alive() {
				t.Error("it is alive after it was stopped")
			}
		})
	}
}

func TestStopWithoutGraceSendsNoSIGTERM(t *testing.T) {
	traces := filepath.Join(t.TempDir(), "tidied")
	identity := startShell(t, "", `trap 'touch "$0"; exit' TERM; while :; do read -r line < /dev/zero; done`, traces)
	for range 2 {
		if err := Stop(t.Context(), identity, 0); err != nil {
			t.Fatal(err)
		}
		if identity.Alive() {
			t.Error("it is alive after it was killed")
		}
	}
	if _, err := os.Stat(traces); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was asked to end: %v", err)
	}
}

func TestStartedProcessJoinsTheCgroup(t *testing.T) {
	group := t.TempDir()
	identity := startShell(t, group, `exec sleep "$1"`, "sh", "1000")
	var command []byte
	for began := time.Now(); string(command) != "sleep\x001000\x00" && time.Since(began) < time.Minute; runtime.Gosched() {
		var err error
		if command, err = os.ReadFile(filepath.Join("/proc", strconv.Itoa(identity.PID), "cmdline")); err != nil {
			t.Fatal(err)
		}
	}
	joined, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if want := strconv.Itoa(identity.PID) + "\n"; err != nil || string(joined) != want || !identity.Alive() {
		t.Errorf("process %d has joined %q (%v) and runs %q", identity.PID, joined, err, command)
	}
}
