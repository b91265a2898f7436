// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// archive returns a compressed archive of files by their paths. Equal files give equal
// bytes: everything has one time, one mode and one owner.
func archive(files map[string][]byte) (content []byte, err error) {
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	writer := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Mode:     0o644,
			Size:     int64(len(files[name])),
			ModTime:  time.Unix(0, 0).UTC(),
			Format:   tar.FormatUSTAR,
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if _, err := writer.Write(files[name]); err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("finish the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

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
