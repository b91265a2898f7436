// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fakeProc writes a process file system with one process.
func fakeProc(t *testing.T, pid int, state string, startTime int, boot string) string {
	t.Helper()
	proc := t.TempDir()
	// The command's name is hostile on purpose.
	fields := append([]string{state, "1"}, strings.Fields(strings.Repeat("0 ", 17))...)
	fields = append(fields, strconv.Itoa(startTime))
	fields = append(fields, strings.Fields(strings.Repeat("0 ", 30))...)
	write(t, filepath.Join(proc, strconv.Itoa(pid), "stat"), fmt.Sprintf("%d (a) R 1 (b) %s\n", pid, strings.Join(fields, " ")))
	write(t, filepath.Join(proc, "sys/kernel/random/boot_id"), boot+"\n")
	return proc
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAlive(t *testing.T) {
	recorded := Identity{PID: 7, StartTime: 1234, BootID: "boot-1"}
	for name, test := range map[string]struct {
		pid       int
		state     string
		startTime int
		boot      string
		want      bool
	}{
		"the same process":          {7, "S", 1234, "boot-1", true},
		"the pid was recycled":      {7, "S", 1235, "boot-1", false},
		"the machine was rebooted":  {7, "S", 1234, "boot-2", false},
		"the process is a zombie":   {7, "Z", 1234, "boot-1", false},
		"no process has the number": {8, "S", 1234, "boot-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			proc := fakeProc(t, test.pid, test.state, test.startTime, test.boot)
			if got := recorded.aliveIn(proc); got != test.want {
				t.Errorf("alive is %t, want %t", got, test.want)
			}
		})
	}
}

func TestAKilledProcessIsAliveUntilItsLastThreadIsGone(t *testing.T) {
	proc := fakeProc(t, 7, "Z", 1234, "boot-1")
	recorded := Identity{PID: 7, StartTime: 1234, BootID: "boot-1"}
	for _, thread := range []string{"7", "8"} {
		write(t, filepath.Join(proc, "7", "task", thread, "stat"), "")
	}
	if !recorded.aliveIn(proc) {
		t.Error("it is not alive while a thread is left")
	}
	if err := os.RemoveAll(filepath.Join(proc, "7", "task", "8")); err != nil {
		t.Fatal(err)
	}
	if recorded.aliveIn(proc) {
		t.Error("it is alive after its last thread is gone")
	}
}

func TestZeroIdentityIsNotAlive(t *testing.T) {
	if (Identity{}).Alive() {
		t.Error("nothing is alive")
	}
}

func TestIdentifyReadsBehindTheCommandName(t *testing.T) {
	got, _, err := lookUp(fakeProc(t, 7, "S", 1234, "boot-1"), 7)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Identity{PID: 7, StartTime: 1234, BootID: "boot-1"}); got != want {
		t.Errorf("identity is %+v, want %+v", got, want)
	}
}

func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "etcd.json")
	want := Identity{PID: 7, StartTime: 1234, BootID: "boot-1"}
	if err := want.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("loaded %+v, want %+v", got, want)
	}
}

func TestLoadTakesMissingAndDamagedRecordsForNothing(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged.json")
	write(t, damaged, `{"pid":`)
	for _, file := range []string{damaged, filepath.Join(t.TempDir(), "missing.json")} {
		if got, err := Load(file); err != nil || got != (Identity{}) {
			t.Errorf("loaded %+v, %v", got, err)
		}
	}
}
