// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteArchive writes a tarball with one tagged image, for `docker load`, `podman load` and `ctr images import`. It writes
// the whole file or none. Without replace, an existing file is an error that wraps fs.ErrExist.
func WriteArchive(file string, tag name.Tag, image v1.Image, replace bool) (err error) {
	information, err := os.Lstat(file)
	switch {
	case err == nil && !information.Mode().IsRegular():
		return fmt.Errorf("write the archive %s: it exists and is not a file", file)
	case err == nil && !replace:
		return fmt.Errorf("write the archive %s: %w", file, fs.ErrExist)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for an old archive: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of the archive: %w", err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(file), ".archive-")
	if err != nil {
		return fmt.Errorf("create a directory for the archive: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	built := filepath.Join(temporary, "image.tar")
	if err := tarball.WriteToFile(built, tag, image); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(built, file); err != nil {
		return fmt.Errorf("put the archive in its place: %w", err)
	}
	return nil
}
