// SPDX-License-Identifier: Apache-2.0

// Package program assembles the quick-exit program: a few machine instructions that exit with 0 at once, whatever the
// arguments, environment, user and file system are. It needs no compiler, C library or interpreter, so the image can be
// built wherever the operator runs.
package program

import (
	"fmt"
	"maps"
	"slices"
)

// Architectures returns the supported architectures by their Go names, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(targets)) }

// For returns the program for an architecture: a static ELF executable for Linux. The same architecture always gives the
// same bytes.
func For(architecture string) ([]byte, error) {
	target, ok := targets[architecture]
	if !ok {
		return nil, fmt.Errorf("assemble the program for architecture %q: only %v are known", architecture, Architectures())
	}
	return executable(target.machine, target.code), nil
}
