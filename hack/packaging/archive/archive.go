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
	"os"
	"time"
)

// each calls add for every file and symbolic link of the directory, in a fixed order. A link has no content.
func each(directory string, add func(name string, mode fs.FileMode, content []byte) error) error {
	files := os.DirFS(directory)
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if entry.Type() == fs.ModeSymlink {
			return add(name, 0o777|fs.ModeSymlink, nil)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return add(name, mode, content)
	})
}

// TarGzip returns a compressed tar archive of the files and symbolic links of a directory.
func TarGzip(directory string) ([]byte, error) {
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	writer := tar.NewWriter(compressed)
	err := each(directory, func(name string, mode fs.FileMode, content []byte) error {
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Mode:     int64(mode.Perm()),
			Size:     int64(len(content)),
			ModTime:  time.Unix(0, 0).UTC(),
			Format:   tar.FormatUSTAR,
		}
		if mode&fs.ModeSymlink != 0 {
			target, err := fs.ReadLink(os.DirFS(directory), name)
			if err != nil {
				return err
			}
			header.Typeflag, header.Linkname = tar.TypeSymlink, target
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err := writer.Write(content)
		return err
	})
	if err := errors.Join(err, writer.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("archive %s: %w", directory, err)
	}
	return buffer.Bytes(), nil
}

// Zip returns a compressed zip archive of the files of a directory. It has no links.
func Zip(directory string) ([]byte, error) {
	buffer := &bytes.Buffer{}
	writer := zip.NewWriter(buffer)
	err := each(directory, func(name string, mode fs.FileMode, content []byte) error {
		if mode&fs.ModeSymlink != 0 {
			return fmt.Errorf("add %s: a zip archive is unpacked where there may be no symbolic links", name)
		}
		// A zip archive knows no earlier time.
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(mode)
		entry, err := writer.CreateHeader(header)
		if err != nil {
			return err
		}
		_, err = entry.Write(content)
		return err
	})
	if err := errors.Join(err, writer.Close()); err != nil {
		return nil, fmt.Errorf("archive %s: %w", directory, err)
	}
	return buffer.Bytes(), nil
}
