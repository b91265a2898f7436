// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// PlatformImage is the image of one platform.
type PlatformImage struct {
	Platform v1.Platform
	Image    v1.Image
}

// Index returns an image index of the images, in their order.
func Index(images []PlatformImage) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		size, err := image.Image.Size()
		if err != nil {
			return nil, fmt.Errorf("measure the manifest for %s: %w", image.Platform, err)
		}
		digest, err := image.Image.Digest()
		if err != nil {
			return nil, fmt.Errorf("digest the manifest for %s: %w", image.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: plainImage{image.Image},
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Size:      size,
				Digest:    digest,
				Platform:  &image.Platform,
			},
		})
	}
	return index, nil
}

// plainImage hides the media type of the configuration, which the library would write as the artifact type. Some
// registries and runtimes do not accept an image with an artifact type.
type plainImage struct{ v1.Image }

// ArtifactType returns nothing, so that the index has no artifact type.
func (plainImage) ArtifactType() (string, error) { return "", nil }
