// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// entry is a file in an archive.
type entry struct {
	name    string
	content []byte
	mode    int64
}

// archive returns a compressed tar archive. Equal entries give equal bytes.
func archive(entries []entry) ([]byte, error) {
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	writer := tar.NewWriter(compressed)
	for _, entry := range slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.name, b.name) }) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: entry.name, Size: int64(len(entry.content)), Mode: cmp.Or(entry.mode, 0o644),
			ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatUSTAR,
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", entry.name, err)
		}
		if _, err := writer.Write(entry.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", entry.name, err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("write an archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// tree returns the files below a directory as entries below another one.
func tree(directory, below string) ([]entry, error) {
	var entries []entry
	files := os.DirFS(directory)
	err := fs.WalkDir(files, ".", func(name string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		entries = append(entries, entry{name: path.Join(below, name), content: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", directory, err)
	}
	return entries, nil
}
