// SPDX-License-Identifier: Apache-2.0

// Package images makes the container images of the local cluster without a container
// engine.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch is the time of everything in an image, so that equal inputs give equal digests.
var epoch = time.Unix(0, 0).UTC()

// rootfs is the content of an image with one layer. Paths have no leading slash.
type rootfs struct {
	// directories maps the paths to their modes, besides those that files need.
	directories map[string]int64
	files       map[string][]byte
	// links maps the paths of hard links to that of a file.
	links map[string]string
	// texts are files that are not executable.
	texts map[string]string
}

func (r rootfs) image(platform v1.Platform, configuration v1.Config) (v1.Image, error) {
	content, err := r.archive()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}}})
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

func (r rootfs) archive() ([]byte, error) {
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

// entries returns everything in the order in which an archive must have it: parents
// before children, files before links to them.
func (r rootfs) entries() []entry {
	var entries []entry
	directories := r.allDirectories()
	for _, name := range sortedKeys(directories) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: directories[name]}})
	}
	for _, name := range sortedKeys(r.files) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content: r.files[name]})
	}
	for _, name := range sortedKeys(r.texts) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content: []byte(r.texts[name])})
	}
	for _, name := range sortedKeys(r.links) {
		entries = append(entries, entry{header: tar.Header{Typeflag: tar.TypeLink, Name: name, Mode: 0o755, Linkname: r.links[name]}})
	}
	return entries
}

func (r rootfs) allDirectories() map[string]int64 {
	all := map[string]int64{}
	add := func(name string) {
		for directory := path.Dir(name); directory != "."; directory = path.Dir(directory) {
			all[directory] = 0o755
		}
	}
	for name := range r.files {
		add(name)
	}
	for name := range r.links {
		add(name)
	}
	for name := range r.texts {
		add(name)
	}
	for name, mode := range r.directories {
		add(name)
		all[name] = mode
	}
	return all
}

func sortedKeys[Value any](values map[string]Value) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
