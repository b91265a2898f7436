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
	files, err := filepath.Glob(procDirectory + "/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []Identity
	for _, file := range files {
		// Threads of the kernel have no arguments.
		line, err := os.ReadFile(file)
		if err != nil || len(line) == 0 || !condition(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if identity, err := Identify(pid); err == nil {
			found = append(found, identity)
		}
	}
	return found, nil
}
