// SPDX-License-Identifier: Apache-2.0

// Package quickexit builds the image that a sidecar is restarted with to end it: a
// single program that exits with 0 at once, whatever its arguments are, found at every
// path that a sidecar's command may name.
package quickexit

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// User is the user and the group that the image runs as unless the pod says otherwise.
const User = "65532:65532"

// SearchPath is the PATH of the image: commands named without a directory are
// found in the directories where other images keep them.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// DefaultPaths returns the paths that the image has when none are asked for. The first
// is the entrypoint.
func DefaultPaths() []string { return []string{"/quick-exit", "/bin/sh", "/bin/sleep"} }

// epoch is the time of everything in the image, so that equal inputs give equal digests.
var epoch = time.Unix(0, 0).UTC()

// Build returns an image whose only files are the program, at the first of the paths,
// which is the entrypoint, and hard links to it at the others. Paths are absolute.
// The same input gives the same digest.
func Build(binary []byte, paths []string, platform v1.Platform) (v1.Image, error) {
	if err := validate(paths); err != nil {
		return nil, err
	}
	content, err := archive(binary, paths)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "sidecar-termination-operator"},
	})
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	image, err = mutate.ConfigFile(image, configuration(image, paths[0], platform))
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return image, nil
}

func validate(paths []string) error {
	if len(paths) == 0 {
		return errors.New("no path for the program")
	}
	for index, name := range paths {
		if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
			return fmt.Errorf("%q is not an absolute path of a file", name)
		}
		for other, parent := range paths {
			if other != index && (name == parent || strings.HasPrefix(name, parent+"/")) {
				return fmt.Errorf("%q and %q cannot both be files", parent, name)
			}
		}
	}
	return nil
}

func configuration(image v1.Image, entrypoint string, platform v1.Platform) *v1.ConfigFile {
	file := &v1.ConfigFile{}
	if current, err := image.ConfigFile(); err == nil {
		file = current.DeepCopy()
	}
	file.Created = v1.Time{Time: epoch}
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Config = v1.Config{
		Entrypoint: []string{entrypoint},
		User:       User,
		Env:        []string{"PATH=" + SearchPath},
	}
	return file
}

// archive returns a tar archive with the directories of the paths, the program and the links.
func archive(binary []byte, paths []string) ([]byte, error) {
	buffer := &bytes.Buffer{}
	writer := tar.NewWriter(buffer)
	for _, directory := range directories(paths) {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755, ModTime: epoch}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add the directory %s: %w", directory, err)
		}
	}
	for index, name := range paths {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: relative(name), Mode: 0o755, ModTime: epoch, Size: int64(len(binary))}
		if index > 0 {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, relative(paths[0]), 0
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if index > 0 {
			continue
		}
		if _, err := writer.Write(binary); err != nil {
			return nil, fmt.Errorf("add the program: %w", err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("finish the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// directories returns all directories above the paths, parents first.
func directories(paths []string) []string {
	var all []string
	for _, name := range paths {
		for directory := path.Dir(relative(name)); directory != "."; directory = path.Dir(directory) {
			all = append(all, directory)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func relative(name string) string { return strings.TrimPrefix(name, "/") }
