// SPDX-License-Identifier: Apache-2.0

// Package images builds the images of a release without a container engine.
package images

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/packaging/program"
	"github.com/sidecar-termination/operator/internal/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/quickexit/image"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names of the images.
const (
	Operator  = settings.Name
	QuickExit = "quick-exit"
)

// Built is an image that was written.
type Built struct {
	Directory string
	Digest    v1.Hash
}

// Write builds the operator's image from the repository and the quick-exit image, each for
// the platforms, and writes each as an OCI layout below the directory, in place of what was
// there. The same sources and the same Go give the same digests.
func Write(ctx context.Context, repository, directory, tag string, platforms []v1.Platform) ([]Built, error) {
	operator, err := operatorIndex(ctx, repository, platforms)
	if err != nil {
		return nil, fmt.Errorf("build the operator's image: %w", err)
	}
	quickExit, err := image.Index(quickexit.DefaultPaths(), platforms)
	if err != nil {
		return nil, fmt.Errorf("build the quick-exit image: %w", err)
	}
	var all []Built
	for _, index := range []struct {
		name  string
		index v1.ImageIndex
	}{{Operator, operator}, {QuickExit, quickExit}} {
		target := filepath.Join(directory, index.name)
		if err := ociimage.WriteLayout(target, tag, index.index, true); err != nil {
			return nil, err
		}
		digest, err := index.index.Digest()
		if err != nil {
			return nil, fmt.Errorf("digest the image %s: %w", index.name, err)
		}
		all = append(all, Built{Directory: target, Digest: digest})
	}
	return all, nil
}

func operatorIndex(ctx context.Context, repository string, platforms []v1.Platform) (v1.ImageIndex, error) {
	var images []ociimage.PlatformImage
	for _, platform := range platforms {
		compiled, err := program.Compile(ctx, repository, ".", platform)
		if err != nil {
			return nil, err
		}
		built, err := clusterimages.Operator(compiled, platform)
		if err != nil {
			return nil, err
		}
		images = append(images, ociimage.PlatformImage{Platform: platform, Image: built})
	}
	return ociimage.Index(images)
}
