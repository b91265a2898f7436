// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// suffix is how the names of test files end.
const suffix = "_test.yaml"

// discover returns the test files of the arguments, each once. A file may have any name. In directories, test files are those
// with the suffix, at any depth.
func discover(arguments []string) ([]string, error) {
	var all []string
	seen := map[string]bool{}
	for _, argument := range arguments {
		info, err := os.Stat(argument)
		if err != nil {
			return nil, fmt.Errorf("find test files: %w", err)
		}
		found := []string{filepath.Clean(argument)}
		if info.IsDir() {
			if found, err = inDirectory(argument); err != nil {
				return nil, fmt.Errorf("find test files: %w", err)
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("find test files: no file below %s ends in %s", argument, suffix)
		}
		for _, path := range found {
			if !seen[path] {
				all = append(all, path)
			}
			seen[path] = true
		}
		if len(all) > maxFiles {
			return nil, fmt.Errorf("find test files: there are more than %d; run the command for fewer directories", maxFiles)
		}
	}
	return all, nil
}

// inDirectory returns the test files below a directory in lexical order. It skips hidden directories.
func inDirectory(root string) ([]string, error) {
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != "." && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
		case strings.HasSuffix(entry.Name(), suffix):
			if found = append(found, filepath.Join(root, filepath.FromSlash(path))); len(found) > maxFiles {
				return fs.SkipAll
			}
		}
		return nil
	})
	return found, err
}
