// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write writes the chart into a directory, in place of a chart that is there.
func (c *Chart) Write(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for an old chart: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(directory, "Chart.yaml")); err != nil {
			return fmt.Errorf("replace %s: it is not empty and not a chart", directory)
		}
		if err := os.RemoveAll(directory); err != nil {
			return fmt.Errorf("remove the old chart: %w", err)
		}
	}
	for name, content := range c.Files {
		file := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("create a directory of the chart: %w", err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return fmt.Errorf("write a file of the chart: %w", err)
		}
	}
	return nil
}
