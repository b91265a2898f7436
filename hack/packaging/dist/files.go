// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// below returns files under a directory's name.
func below(directory string, files map[string][]byte) map[string][]byte {
	moved := map[string][]byte{}
	for name, content := range files {
		moved[path.Join(directory, name)] = content
	}
	return moved
}

// readTree returns the files of a directory by their paths in it.
func readTree(directory string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(directory, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(directory, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		files[filepath.ToSlash(relative)] = content
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", directory, err)
	}
	return files, nil
}
