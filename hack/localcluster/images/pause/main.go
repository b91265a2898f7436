// SPDX-License-Identifier: Apache-2.0

// Command pause is the first process of every pod on the local cluster. It waits for
// SIGTERM and reaps the processes that become its children.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

func reap() {
	for {
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}
