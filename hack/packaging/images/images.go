// SPDX-License-Identifier: Apache-2.0

// Package images builds the images of a release without a container engine.
package images

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/program"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names of the images.
const (
	Operator  = settings.Name
	QuickExit = "quick-exit"
)

// Platforms are the platforms of a release.
func Platforms() []v1.Platform {
	return []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
}

// Built is an image that was written.
type Built struct {
	Directory string
	Digest    v1.Hash
}

// Write builds the operator's image from the repository and the quick-exit image, each for
// the platforms, and writes each as an OCI layout below the directory, in place of what was
// there. The same sources and the same Go give the same digests.
func Write(ctx context.Context, repository, directory, tag string, platforms []v1.Platform) ([]Built, error) {
	operator, err := build(ctx, repository, ".", platforms, clusterimages.Operator)
	if err != nil {
		return nil, fmt.Errorf("build the operator's image: %w", err)
	}
	quickExit, err := build(ctx, repository, clusterimages.QuickExitProgram, platforms, func(program []byte, platform v1.Platform) (v1.Image, error) {
		return clusterimages.QuickExit(program, quickexit.DefaultPaths(), platform)
	})
	if err != nil {
		return nil, fmt.Errorf("build the quick-exit image: %w", err)
	}
	var all []Built
	for _, index := range []struct {
		name  string
		index v1.ImageIndex
	}{{Operator, operator}, {QuickExit, quickExit}} {
		target := filepath.Join(directory, index.name)
		if err := ociimage.WriteLayout(target, tag, index.index); err != nil {
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

// build compiles the program at the path for each platform, and makes an index of the images with it.
func build(ctx context.Context, repository, path string, platforms []v1.Platform, image func([]byte, v1.Platform) (v1.Image, error)) (v1.ImageIndex, error) {
	var images []ociimage.PlatformImage
	for _, platform := range platforms {
		compiled, err := program.Compile(ctx, repository, path, platform)
		if err != nil {
			return nil, err
		}
		built, err := image(compiled, platform)
		if err != nil {
			return nil, err
		}
		images = append(images, ociimage.PlatformImage{Platform: platform, Image: built})
	}
	return ociimage.Index(images), nil
}
