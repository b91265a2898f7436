// SPDX-License-Identifier: Apache-2.0

package process

import (
	"path/filepath"
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
