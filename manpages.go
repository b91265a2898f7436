// SPDX-License-Identifier: Apache-2.0

//go:build manpages

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"
)

// Built with this tag the program writes its manual to the directory that it is given, and is of no other use: the programs
// that are shipped need not be able to.
func init() {
	// The same sources give the same pages, whoever makes them and whenever.
	epoch := time.Unix(0, 0).UTC()
	_ = os.Setenv("HOME", "$HOME")
	command := newPlugin(time.Now)
	command.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Date: &epoch, Source: "sidecar-termination-operator", Manual: "User Commands"}
	if err := doc.GenManTree(command, header, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
