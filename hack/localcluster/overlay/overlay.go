// SPDX-License-Identifier: Apache-2.0

// Package overlay builds programs with changed source files, by the option -overlay of the go command.
package overlay

import (
	"encoding/json"
	"fmt"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// Replacements maps paths of source files to the files that are compiled instead.
type Replacements map[string]string

// Write writes the replacements to a file, and returns the argument with which the go command builds with them.
func (r Replacements) Write(file string) (argument string, err error) {
	content, err := json.Marshal(map[string]Replacements{"Replace": r})
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	return "-overlay=" + file, layout.WriteFile(file, content)
}
