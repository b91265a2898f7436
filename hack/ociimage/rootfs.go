// SPDX-License-Identifier: Apache-2.0

// Package ociimage builds container images from a few files, without a container engine or a base image. It writes them
// as layouts or archives, or pushes them to registries. Equal inputs give equal digests.
package ociimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
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

// Rootfs is the content of an image with one layer. Paths have no leading slash; parent directories are added. Root owns
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
	content, err := r.archive()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}}})
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: epoch}
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Config = configuration
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return image, nil
}

func (r Rootfs) archive() ([]byte, error) {
	buffer := &bytes.Buffer{}
	writer := tar.NewWriter(buffer)
	for _, entry := range r.entries() {
		entry.header.ModTime = epoch
		entry.header.Size = int64(len(entry.content))
		if err := writer.WriteHeader(&entry.header); err != nil {
			return nil, fmt.Errorf("add %s: %w", entry.header.Name, err)
		}
		if _, err := writer.Write(entry.content); err != nil {
			return nil, fmt.Errorf("fill %s: %w", entry.header.Name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("finish the layer: %w", err)
	}
	return buffer.Bytes(), nil
}

type entry struct {
	header  tar.Header
	content []byte
}

// entries returns everything in the order that an archive requires: parents before children, files before links to them.
func (r Rootfs) entries() []entry {
	var entries []entry
	directories := r.allDirectories()
	for _, name := range sortedKeys(directories) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: directories[name]}})
	}
	for _, name := range sortedKeys(r.Programs) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content: r.Programs[name]})
	}
	for _, name := range sortedKeys(r.Texts) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content: []byte(r.Texts[name])})
	}
	for _, name := range sortedKeys(r.Links) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeLink, Name: name, Mode: 0o755, Linkname: r.Links[name]}})
	}
	return entries
}

func (r Rootfs) allDirectories() map[string]int64 {
	all := map[string]int64{}
	add := func(name string) {
		for directory := path.Dir(name); directory != "."; directory = path.Dir(directory) {
			all[directory] = 0o755
		}
	}
	for name := range r.Programs {
		add(name)
	}
	for name := range r.Links {
		add(name)
	}
	for name := range r.Texts {
		add(name)
	}
	for name := range r.Directories {
		add(name)
	}
	maps.Copy(all, r.Directories)
	return all
}

func sortedKeys[Value any](values map[string]Value) []string {
	return slices.Sorted(maps.Keys(values))
}
