// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Find returns all processes whose arguments, the command's name included, satisfy
// the condition. Processes that end meanwhile are left out.
func Find(condition func(arguments []string) bool) ([]Identity, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []Identity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || !condition(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")) {
			continue
		}
		if identity, err := Identify(pid); err == nil {
			found = append(found, identity)
		}
	}
	return found, nil
}
