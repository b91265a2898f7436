// SPDX-License-Identifier: Apache-2.0

// Command sidecar simulates a sidecar in an image without a shell. It runs until SIGTERM and then exits 7, unlike the quick-exit image,
// which exits 0. As a hook it creates a file, so that a test can see that the hook ran:
//
//	sidecar [anything]
//	sidecar hook FILE
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hook" {
		if err := os.WriteFile(os.Args[2], nil, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	os.Exit(7)
}
