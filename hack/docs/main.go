// SPDX-License-Identifier: Apache-2.0

// Command docs prints the project's parsed documents as JSON for e2e/docs. Its tests check the rules of CONTRIBUTING.md.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// root is the root of the repository.
const root = "../.."

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	documents, err := readAll(root)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(documents)
}
