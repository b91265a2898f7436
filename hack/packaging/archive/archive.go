// SPDX-License-Identifier: Apache-2.0

// Package archive packs files for releases. Equal files give equal bytes: everything has
// one time and one owner.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// File is what an archive has at a path: a file, or a symbolic link.
type File struct {
	Content    []byte
	Executable bool
	// Link is what a symbolic link refers to; such a file has no content.
	Link string
}

func (f File) mode() fs.FileMode {
	switch {
	case f.Link != "":
		return 0o777 | fs.ModeSymlink
	case f.Executable:
		return 0o755
	default:
		return 0o644
	}
}

// Plain returns files that are neither programs nor links.
func Plain(contents map[string][]byte) map[string]File {
	files := map[string]File{}
	for name, content := range contents {
		files[name] = File{Content: content}
	}
	return files
}

// TarGzip returns a compressed tar archive of files by their paths.
func TarGzip(files map[string]File) ([]byte, error) {
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	writer := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Mode:     int64(file.mode().Perm()),
			Size:     int64(len(file.Content)),
			ModTime:  time.Unix(0, 0).UTC(),
			Format:   tar.FormatUSTAR,
		}
		if file.Link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.Link
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if _, err := writer.Write(file.Content); err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("finish the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// Zip returns a compressed zip archive of files by their paths. It has no links.
func Zip(files map[string]File) ([]byte, error) {
	buffer := &bytes.Buffer{}
	writer := zip.NewWriter(buffer)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name].Link != "" {
			return nil, fmt.Errorf("add %s: a zip archive is unpacked where there may be no symbolic links", name)
		}
		// A zip archive knows no earlier time.
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(files[name].mode())
		entry, err := writer.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if _, err := entry.Write(files[name].Content); err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("finish the archive: %w", err)
	}
	return buffer.Bytes(), nil
}
