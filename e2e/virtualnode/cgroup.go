// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const cgroupMount = "/sys/fs/cgroup"

// takeCgroup moves this process and its children to the control group, and kills processes
// that a previous run left there. An empty name does nothing.
func takeCgroup(name string) error {
	if name == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(cgroupMount, "*", name, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("look for the control group: %w", err)
	}
	// cgroup v1 has one hierarchy for each controller, cgroup v2 a single one.
	if unified := filepath.Join(cgroupMount, name, "cgroup.procs"); len(files) == 0 {
		files = []string{unified}
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the processes of the control group: %w", err)
		}
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil || pid == os.Getpid() || pid <= 0 {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill a process that was left: %w", err)
			}
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("enter the control group: %w", err)
		}
	}
	return nil
}
