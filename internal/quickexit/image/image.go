// SPDX-License-Identifier: Apache-2.0

// Package image builds the quick-exit image: the program of package program at the entrypoint, and hard links to it at
// the path of every command that it replaces.
package image

import (
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/internal/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/quickexit/program"
)

// Platforms returns the platforms that the image can be built for, sorted.
func Platforms() []v1.Platform {
	var platforms []v1.Platform
	for _, architecture := range program.Architectures() {
		platforms = append(platforms, v1.Platform{OS: "linux", Architecture: architecture})
	}
	return platforms
}

// Build returns the image with the paths for one platform. The same set of paths gives the same digest: their order and
// duplicates do not matter.
func Build(paths []string, platform v1.Platform) (v1.Image, error) {
	if err := quickexit.ValidatePaths(paths); err != nil {
		return nil, fmt.Errorf("check the paths: %w", err)
	}
	if platform.OS != "linux" {
		return nil, fmt.Errorf("build for %s: there are programs for linux only", platform)
	}
	binary, err := program.For(platform.Architecture)
	if err != nil {
		return nil, fmt.Errorf("build for %s: %w", platform, err)
	}
	root := ociimage.Rootfs{
		Programs: map[string][]byte{relative(quickexit.Entrypoint): binary},
		Links:    map[string]string{},
	}
	for _, path := range paths {
		if path != quickexit.Entrypoint {
			root.Links[relative(path)] = relative(quickexit.Entrypoint)
		}
	}
	return root.Image(platform, v1.Config{
		Entrypoint: []string{quickexit.Entrypoint},
		User:       quickexit.User,
		Env:        []string{"PATH=" + quickexit.SearchPath},
		WorkingDir: "/",
		Labels:     ociimage.Labels("quick-exit", "Exits with 0 at once, whatever the command is"),
	})
}

// Index returns the image with the paths for several platforms.
func Index(paths []string, platforms []v1.Platform) (v1.ImageIndex, error) {
	var images []ociimage.PlatformImage
	for _, platform := range platforms {
		built, err := Build(paths, platform)
		if err != nil {
			return nil, err
		}
		images = append(images, ociimage.PlatformImage{Platform: platform, Image: built})
	}
	return ociimage.Index(images)
}

func relative(path string) string { return strings.TrimPrefix(path, "/") }
