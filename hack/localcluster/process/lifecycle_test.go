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
	"testing"
	"time"
)

func TestStartAndStop(t *testing.T) {
	for name, script := range map[string]string{
		"ends when asked":    "exec sleep 1000",
		"must be killed too": `trap "" TERM; while :; do read -r line < /dev/zero; done`,
	} {
		t.Run(name, func(t *testing.T) {
			identity, err := Start(Command{
				Path:      "/bin/sh",
				Arguments: []string{"-c", script},
				Log:       filepath.Join(t.TempDir(), "logs", "sh.log"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if !identity.Alive() {
				t.Error("it is not alive after its start")
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

// endingTest is set in the process that TestAProcessEndsWithItsCallerWhenAsked starts as the caller.
const endingTest = "PROCESS_TEST_DIRECTORY"

func TestAProcessEndsWithItsCallerWhenAsked(t *testing.T) {
	if directory := os.Getenv(endingTest); directory != "" {
		beTheCaller(t, directory)
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends it")
	}
	directory := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	caller, err := Start(Command{
		Path: program, Arguments: []string{"-test.run=^" + t.Name() + "$"}, Environment: []string{endingTest + "=" + directory},
		Log: filepath.Join(directory, "caller.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Stop(context.WithoutCancel(t.Context()), caller, 0) })
	children := map[string]Identity{}
	for _, name := range []string{"stays", "goes"} {
		for !children[name].Alive() {
			if !caller.Alive() {
				log, _ := os.ReadFile(filepath.Join(directory, "caller.log"))
				t.Fatalf("the caller ended: %s", log)
			}
			if children[name], err = Load(filepath.Join(directory, name)); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		t.Cleanup(func() { _ = Stop(context.WithoutCancel(t.Context()), children[name], 0) })
	}
	if err := Stop(t.Context(), caller, 0); err != nil {
		t.Fatal(err)
	}
	if !waitGone(t.Context(), children["goes"], time.Minute) {
		t.Error("the process with EndWithCaller still runs")
	}
	if !children["stays"].Alive() {
		t.Error("what was to outlive its caller is gone")
	}
}

// beTheCaller starts two processes, tells of them, and waits to be killed.
func beTheCaller(t *testing.T, directory string) {
	t.Helper()
	for name, ends := range map[string]bool{"stays": false, "goes": true} {
		child, err := Start(Command{
			Path: "/bin/sleep", Arguments: []string{"1000"}, Log: filepath.Join(directory, name+".log"), EndWithCaller: ends,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Save(filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	select {}
}

func TestStopWithoutGraceSendsNoSIGTERM(t *testing.T) {
	traces := filepath.Join(t.TempDir(), "tidied")
	identity, err := Start(Command{
		Path:      "/bin/sh",
		Arguments: []string{"-c", `trap 'touch "$0"; exit' TERM; while :; do read -r line < /dev/zero; done`, traces},
		Log:       filepath.Join(t.TempDir(), "sh.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
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

func TestTheLogSaysHowAProcessHasEnded(t *testing.T) {
	for name, test := range map[string]struct{ script, want string }{
		"by itself":   {"echo last words; exit 3", "last words\nprocess %d has ended: exit status 3\n"},
		"by a signal": {"kill -KILL $$", "process %d has ended: signal: killed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file, signal := filepath.Join(t.TempDir(), "sh.log"), filepath.Join(t.TempDir(), "end")
			script := `until [ -e "$0" ]; do :; done; ` + test.script
			identity, err := Start(Command{Path: "/bin/sh", Arguments: []string{"-c", script, signal}, Log: file})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(signal, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(test.want, identity.PID)
			var log []byte
			for began := time.Now(); len(log) < len(want) && time.Since(began) < time.Minute; runtime.Gosched() {
				if log, err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
			}
			if string(log) != want {
				t.Errorf("the log is %q, want %q", log, want)
			}
		})
	}
}

func TestStopLeavesARecycledPidAlone(t *testing.T) {
	identity, err := Start(Command{Path: "/bin/sh", Arguments: []string{"-c", "exec sleep 1000"}, Log: filepath.Join(t.TempDir(), "sh.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Stop(t.Context(), identity, time.Second); err != nil {
			t.Error(err)
		}
	}()
	earlier := identity
	earlier.StartTime--
	if err := Stop(t.Context(), earlier, 0); err != nil {
		t.Fatal(err)
	}
	if !identity.Alive() {
		t.Error("the process that has the pid now was stopped")
	}
}
