// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// latest tags the index of a layout, for tools that address it as DIRECTORY:TAG.
var latest = v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "latest"}}

// unfinished is the suffix of a file or directory that is being written.
const unfinished = ".part"

// EmptyIndex is an image index without images.
func EmptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }

// Append returns the index with the image of a further platform.
func Append(index v1.ImageIndex, platform v1.Platform, image v1.Image) v1.ImageIndex {
	return mutate.AppendManifests(index, mutate.IndexAddendum{Add: plainImage{image}, Descriptor: v1.Descriptor{Platform: &platform}})
}

// plainImage hides the media type of the configuration, which the library would write as the artifact type. Some
// registries and runtimes do not accept an image with an artifact type.
type plainImage struct{ v1.Image }

// ArtifactType returns nothing, so that the index has no artifact type.
func (plainImage) ArtifactType() (string, error) { return "", nil }

// WriteLayout writes an OCI layout with the index, tagged latest, in place of what was there. It writes the whole directory or none.
func WriteLayout(directory string, index v1.ImageIndex) error {
	if err := os.RemoveAll(directory + unfinished); err != nil {
		return fmt.Errorf("remove an unfinished layout: %w", err)
	}
	tagged := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: latest})
	if _, err := layout.Write(directory+unfinished, tagged); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := errors.Join(os.RemoveAll(directory), os.Rename(directory+unfinished, directory)); err != nil {
		return fmt.Errorf("put the layout in its place: %w", err)
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

// WriteArchive writes a tarball with one tagged image, for `docker load`, `podman load` and `ctr images import`, in place of what was there. It
// writes the whole file or none.
func WriteArchive(file string, tag name.Tag, image v1.Image) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of the archive: %w", err)
	}
	if err := tarball.WriteToFile(file+unfinished, tag, image); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(file+unfinished, file); err != nil {
		return fmt.Errorf("put the archive in its place: %w", err)
	}
	return nil
}
