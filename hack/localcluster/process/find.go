// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Find returns all processes whose arguments, the command's name included, satisfy
// the condition. Processes that end meanwhile are left out.
func Find(condition func(arguments []string) bool) ([]Identity, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []Identity
	for _, process := range all {
		// Threads of the kernel have no arguments.
		arguments, err := process.CmdLine()
		if err != nil || len(arguments) == 0 || !condition(arguments) {
			continue
		}
		if identity, err := Identify(process.PID); err == nil {
			found = append(found, identity)
		}
	}
	return found, nil
}
