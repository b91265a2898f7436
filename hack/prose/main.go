// SPDX-License-Identifier: Apache-2.0

// Prose prepares texts for make verify-prose and for reviewers.
//
//	prose extract DIRECTORY < FILES   writes the strings and the names of Go files, manifests, and the comments of other files
//	prose sample SEED < FILES         prints 60 comments and 60 sentences for users, chosen at random
//
// FILES are paths relative to the working directory, one a line.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(args []string, input io.Reader, output io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: prose extract DIRECTORY | prose sample SEED")
	}
	var files []string
	for scanner := bufio.NewScanner(input); scanner.Scan(); {
		files = append(files, scanner.Text())
	}
	switch args[0] {
	case "extract":
		return extract(files, args[1])
	case "sample":
		seed, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return fmt.Errorf("read the seed: %w", err)
		}
		return sample(files, seed, output)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}
