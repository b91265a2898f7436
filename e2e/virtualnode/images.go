// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// unpack replaces the content of a directory with the file system of an image. The image's archive has the name of the reference,
// with _ instead of / and :.
func unpack(archives, reference, root string) (v1.Config, error) {
	archive := filepath.Join(archives, strings.NewReplacer("/", "_", ":", "_").Replace(reference)+".tar")
	image, err := tarball.ImageFromPath(archive, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return v1.Config{}, fmt.Errorf("failed to pull image %q: not found", reference)
	}
	if err != nil {
		return v1.Config{}, fmt.Errorf("open image %q: %w", reference, err)
	}
	file, err := image.ConfigFile()
	if err := errors.Join(err, os.RemoveAll(root), os.MkdirAll(filepath.Join(root, "dev"), 0o755)); err != nil {
		return v1.Config{}, fmt.Errorf("read image %q and make room for it: %w", reference, err)
	}
	content := mutate.Extract(image)
	tar := exec.Command("tar", "-x", "-f", "-", "-C", root)
	tar.Stdin = content
	output, err := tar.CombinedOutput()
	if err := errors.Join(err, content.Close()); err != nil {
		return v1.Config{}, fmt.Errorf("unpack image %q: %w: %s", reference, err, output)
	}
	// Shells need this device, 1:3, for background commands.
	if err := syscall.Mknod(filepath.Join(root, "dev", "null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		return v1.Config{}, fmt.Errorf("make /dev/null for image %q: %w", reference, err)
	}
	return file.Config, nil
}
