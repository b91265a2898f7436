// SPDX-License-Identifier: Apache-2.0

// Package process starts long-lived processes and stops exactly those: a process
// is identified by its pid, its start time and the boot that it was started in,
// so that a recycled pid is never taken for it.
package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// procDirectory is where the kernel lists the processes.
const procDirectory = "/proc"

// Identity names one process, even after its pid is reused.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot.
	StartTime uint64 `json:"startTime"`
	BootID    string `json:"bootID"`
}

// Identify returns the identity of the process that has the pid now.
func Identify(pid int) (Identity, error) {
	identity, _, err := lookUp(procDirectory, pid)
	return identity, err
}

// lookUp returns the identity and the state of the process that has the pid now.
func lookUp(mount string, pid int) (identity Identity, state string, err error) {
	content, err := os.ReadFile(filepath.Join(mount, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Identity{}, "", fmt.Errorf("find process %d: %w", pid, err)
	}
	// See proc_pid_stat(5). The name of the command may contain spaces and parentheses.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 {
		return Identity{}, "", fmt.Errorf("process %d has %d fields in its status", pid, len(fields))
	}
	started, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Identity{}, "", fmt.Errorf("read the start of process %d: %w", pid, err)
	}
	bootID, err := os.ReadFile(filepath.Join(mount, "sys/kernel/random/boot_id"))
	if err != nil {
		return Identity{}, "", fmt.Errorf("read the boot id: %w", err)
	}
	return Identity{PID: pid, StartTime: started, BootID: strings.TrimSpace(string(bootID))}, fields[0], nil
}

// Alive reports whether the process still runs, any of its threads, which hold its ports. A
// zombie that has no other threads does not.
func (i Identity) Alive() bool { return i.aliveIn(procDirectory) }

func (i Identity) aliveIn(mount string) bool {
	now, state, err := lookUp(mount, i.PID)
	if err != nil || now != i || state == "X" {
		return false
	}
	// The first thread stays until all others are gone.
	threads, _ := os.ReadDir(filepath.Join(mount, strconv.Itoa(i.PID), "task"))
	return state != "Z" || len(threads) > 1
}

// Save writes the identity to a file.
func (i Identity) Save(file string) error {
	content, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encode the process record: %w", err)
	}
	return layout.WriteFile(file, content)
}

// Load reads the identity that Save wrote. The zero identity, which is never alive,
// stands for a missing or damaged file.
func Load(file string) (Identity, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, nil
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read the process record: %w", err)
	}
	var identity Identity
	if json.Unmarshal(content, &identity) != nil {
		return Identity{}, nil
	}
	return identity, nil
}
