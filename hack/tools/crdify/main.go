// SPDX-License-Identifier: Apache-2.0

// Command crdify fails when the custom resource definitions of the repository would break
// objects or clients of an earlier state: the last release, or any commit.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	repository := flag.String("repository", "../../..", "directory of the repository")
	base := flag.String("base", "", "commit to compare with; the last release by default")
	flag.Parse()
	if err := run(*repository, *base); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(repository, base string) error {
	old, err := findBaseline(repository, base)
	if err != nil {
		return err
	}
	if old == nil {
		fmt.Println("CRDs: nothing has been released that they could break")
		return nil
	}
	current, err := readDirectory(repository, definitions)
	if err != nil {
		return err
	}
	report, err := compare(old.definitions, current)
	if err != nil {
		return fmt.Errorf("compare with %s: %w", old.name, err)
	}
	if report != "" {
		return fmt.Errorf("the CRDs break what %s has:\n%s", old.name, report)
	}
	fmt.Printf("CRDs: they break nothing of %s\n", old.name)
	return nil
}
