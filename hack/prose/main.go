// SPDX-License-Identifier: Apache-2.0

// Prose prepares texts for make verify-prose and make prose-sample.
//
//	prose DIRECTORY < FILES   writes the strings, names and comments of Go files, manifests, and the comments of other files
//
// FILES are paths relative to the working directory, one a line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(args []string, input io.Reader) error {
	if len(args) != 1 {
		return errors.New("usage: prose DIRECTORY")
	}
	var files []string
	for scanner := bufio.NewScanner(input); scanner.Scan(); {
		files = append(files, scanner.Text())
	}
	return extract(files, args[0])
}
