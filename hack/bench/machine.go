// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes where the benchmark ran.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	// Load is the load average of the last minute before the benchmark: figures of a busy machine mean
	// little. It is 0 if unknown.
	Load float64 `json:"loadBefore,string"`
	Go   string  `json:"go"`
}

// machine describes this machine.
func machine() Machine {
	read := func(file string) string {
		content, err := os.ReadFile(file)
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(content))
	}
	lastMinute, _, _ := strings.Cut(read("/proc/loadavg"), " ")
	load, _ := strconv.ParseFloat(lastMinute, 64)
	return Machine{CPUs: runtime.NumCPU(), Kernel: read("/proc/sys/kernel/osrelease"), Load: load, Go: runtime.Version()}
}
