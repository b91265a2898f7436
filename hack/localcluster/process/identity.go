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
)

// Identity names one process, even after its pid is reused.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot.
	StartTime uint64 `json:"startTime"`
	BootID    string `json:"bootID"`
}

// Identify returns the identity of the process that has the pid now.
func Identify(pid int) (Identity, error) {
	return identifyIn("/proc", pid)
}

func identifyIn(proc string, pid int) (Identity, error) {
	stat, err := readStat(proc, pid)
	if err != nil {
		return Identity{}, err
	}
	bootID, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return Identity{}, fmt.Errorf("read the boot id: %w", err)
	}
	return Identity{PID: pid, StartTime: stat.startTime, BootID: strings.TrimSpace(string(bootID))}, nil
}

// Alive reports whether the process still runs, any of its threads, which hold its ports. A
// zombie that has no other threads does not.
func (i Identity) Alive() bool { return i.aliveIn("/proc") }

func (i Identity) aliveIn(proc string) bool {
	if i.PID <= 0 {
		return false
	}
	now, err := identifyIn(proc, i.PID)
	if err != nil || now != i {
		return false
	}
	stat, err := readStat(proc, i.PID)
	if err != nil || stat.state == 'X' {
		return false
	}
	return stat.state != 'Z' || len(threads(proc, i.PID)) > 1
}

// threads returns the threads of the process. The first one stays until all others are gone.
func threads(proc string, pid int) []os.DirEntry {
	entries, _ := os.ReadDir(filepath.Join(proc, strconv.Itoa(pid), "task"))
	return entries
}

// Save writes the identity to a file.
func (i Identity) Save(file string) error {
	content, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encode the process record: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of the process record: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("write the process record: %w", err)
	}
	return nil
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

type stat struct {
	state     byte
	startTime uint64
}

func readStat(proc string, pid int) (stat, error) {
	content, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	return parseStat(content)
}

// parseStat reads the fields behind the command name, which may itself hold spaces
// and parentheses.
func parseStat(content []byte) (stat, error) {
	end := bytes.LastIndexByte(content, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("parse a process state: no command name in %q", content)
	}
	fields := strings.Fields(string(content[end+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("parse a process state: %d fields behind the command name, want at least 20", len(fields))
	}
	startTime, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse the start time of a process: %w", err)
	}
	return stat{state: fields[0][0], startTime: startTime}, nil
}
