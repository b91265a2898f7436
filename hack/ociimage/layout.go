// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// annotationReference is the tag of an image in a layout, for tools that address it as DIRECTORY:TAG.
const annotationReference = "org.opencontainers.image.ref.name"

// layoutMarker is the file that every OCI layout has.
const layoutMarker = "oci-layout"

// WriteLayout writes an OCI layout with the tagged index. It writes the whole directory or nothing, after reading the
// layout back and validating it. Without replace, a directory that is not empty is an error that wraps fs.ErrExist; with
// replace, it must be a layout.
func WriteLayout(directory, tag string, index v1.ImageIndex, replace bool) (err error) {
	if err := checkDirectory(directory, replace); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(directory))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("create the parent of the layout: %w", err)
	}
	temporary, err := os.MkdirTemp(parent, ".layout-")
	if err != nil {
		return fmt.Errorf("create a directory for the layout: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	built := filepath.Join(temporary, "layout")
	if err := writeValidLayout(built, tag, index); err != nil {
		return err
	}
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove the old layout: %w", err)
	}
	if err := os.Rename(built, directory); err != nil {
		return fmt.Errorf("put the layout in its place: %w", err)
	}
	return nil
}

func checkDirectory(directory string, replace bool) error {
	entries, err := os.ReadDir(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for an old layout: %w", err)
	case len(entries) == 0:
		return nil
	case !replace:
		return fmt.Errorf("write the layout %s: %w", directory, fs.ErrExist)
	}
	if _, err := os.Stat(filepath.Join(directory, layoutMarker)); err != nil {
		return fmt.Errorf("replace %s: it is not empty and not an OCI layout", directory)
	}
	return nil
}

func writeValidLayout(directory, tag string, index v1.ImageIndex) error {
	written, err := layout.Write(directory, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := written.AppendIndex(index, layout.WithAnnotations(map[string]string{annotationReference: tag})); err != nil {
		return fmt.Errorf("write the image index: %w", err)
	}
	read, err := ReadLayout(directory)
	if err != nil {
		return err
	}
	if err := validate.Index(read); err != nil {
		return fmt.Errorf("validate the layout that was written: %w", err)
	}
	return nil
}

// ReadLayout returns the image index of a layout that WriteLayout wrote.
func ReadLayout(directory string) (v1.ImageIndex, error) {
	outer, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", directory, err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the index of the layout %s: %w", directory, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("read the layout %s: it has %d images, not 1", directory, len(manifest.Manifests))
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return nil, fmt.Errorf("read the image index of the layout %s: %w", directory, err)
	}
	return index, nil
}
