// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images are the image archives of a directory. An archive has the name of its reference,
// with _ instead of / and :.
type Images struct {
	Directory string
}

// image is an unpacked image.
type image struct {
	reference string
	digest    string
	config    v1.Config
}

// archive returns the path of an image's archive.
func (i Images) archive(reference string) string {
	return filepath.Join(i.Directory, strings.NewReplacer("/", "_", ":", "_").Replace(reference)+".tar")
}

// unpack replaces the content of a directory with the file system of the image.
func (i Images) unpack(reference, root string) (image, error) {
	archive := i.archive(reference)
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		return image{}, fmt.Errorf("failed to pull image %q: not found", reference)
	}
	source, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return image{}, fmt.Errorf("open image %q: %w", reference, err)
	}
	digest, err := source.Digest()
	if err != nil {
		return image{}, fmt.Errorf("identify image %q: %w", reference, err)
	}
	file, err := source.ConfigFile()
	if err != nil {
		return image{}, fmt.Errorf("read the configuration of image %q: %w", reference, err)
	}
	if err := os.RemoveAll(root); err != nil {
		return image{}, fmt.Errorf("make room for image %q: %w", reference, err)
	}
	content := mutate.Extract(source)
	err = errors.Join(extract(content, root), makeNull(root))
	if err := errors.Join(err, content.Close()); err != nil {
		return image{}, fmt.Errorf("unpack image %q: %w", reference, err)
	}
	return image{reference: reference, digest: digest.String(), config: file.Config}, nil
}

// extract writes directories, files and links. It writes nothing outside of the root.
func extract(archive io.Reader, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make the root: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer func() { _ = root.Close() }()
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := write(root, header, reader); err != nil {
			return fmt.Errorf("write %s: %w", header.Name, err)
		}
	}
}

func write(root *os.Root, header *tar.Header, content io.Reader) error {
	name := strings.Trim(filepath.Clean("/"+header.Name), "/")
	if name == "" {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := header.FileInfo().Mode()
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode.Perm()|mode&fs.ModeSticky)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.Trim(filepath.Clean("/"+header.Linkname), "/"), name)
	case tar.TypeReg:
		// A process that starts now would inherit the open file, and a program that is open for
		// writing cannot run.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode.Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	default:
		return nil
	}
}

// makeNull creates /dev/null, which shells need for background commands.
func makeNull(root string) error {
	const null = 1<<8 | 3
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		return fmt.Errorf("make /dev: %w", err)
	}
	device := filepath.Join(root, "dev", "null")
	if err := syscall.Mknod(device, syscall.S_IFCHR|0o666, null); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make /dev/null: %w", err)
	}
	return os.Chmod(device, 0o666)
}
