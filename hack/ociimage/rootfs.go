// SPDX-License-Identifier: Apache-2.0

// Package ociimage builds container images from a few files, without a container engine or a base image. It writes them
// as layouts or archives, or pushes them to registries. Equal inputs give equal digests.
package ociimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is every timestamp in an image, so that equal inputs give equal digests.
var epoch = time.Unix(0, 0).UTC()

// Rootfs is the content of an image with one layer, or of an archive. Paths have no leading slash; parent directories are added. Root owns
// everything.
type Rootfs struct {
	// Directories maps paths to modes.
	Directories map[string]int64
	// Programs are executable by everybody.
	Programs map[string][]byte
	// Links maps paths of hard links to paths of programs.
	Links map[string]string
	// Texts are readable by everybody.
	Texts map[string]string
}

// Image returns an OCI image with the content for a platform.
func (r Rootfs) Image(platform v1.Platform, configuration v1.Config) (v1.Image, error) {
	content, err := r.Archive()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: epoch}, RootFS: v1.RootFS{Type: "layers"}, Config: configuration,
	})
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}}})
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	return image, nil
}

// Archive returns the files as a tar archive in the order that a layer requires: parents before children, files before links to them.
func (r Rootfs) Archive() ([]byte, error) {
	buffer := &bytes.Buffer{}
	writer := tar.NewWriter(buffer)
	var failures error
	add := func(header tar.Header, content []byte) {
		header.ModTime, header.Size = epoch, int64(len(content))
		err := writer.WriteHeader(&header)
		_, writeErr := writer.Write(content)
		failures = errors.Join(failures, err, writeErr)
	}
	directories := r.allDirectories()
	for _, name := range slices.Sorted(maps.Keys(directories)) {
		add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: directories[name]}, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, r.Programs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Texts)) {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(r.Texts[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Links)) {
		add(tar.Header{Typeflag: tar.TypeLink, Name: name, Mode: 0o755, Linkname: r.Links[name]}, nil)
	}
	if err := errors.Join(failures, writer.Close()); err != nil {
		return nil, fmt.Errorf("archive the files: %w", err)
	}
	return buffer.Bytes(), nil
}

// allDirectories returns the directories with all parents.
func (r Rootfs) allDirectories() map[string]int64 {
	all := map[string]int64{}
	for _, names := range []iter.Seq[string]{maps.Keys(r.Programs), maps.Keys(r.Links), maps.Keys(r.Texts), maps.Keys(r.Directories)} {
		for name := range names {
			for directory := path.Dir(name); directory != "."; directory = path.Dir(directory) {
				all[directory] = 0o755
			}
		}
	}
	maps.Copy(all, r.Directories)
	return all
}
