// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names of the images.
const (
	OperatorImage  = settings.Name
	QuickExitImage = "quick-exit"
)

var imageNames = []string{OperatorImage, QuickExitImage}

// ImagePlatforms are the platforms of a release.
func ImagePlatforms() []v1.Platform {
	return []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
}

// WriteImages builds the operator's image from the repository and the quick-exit image, each for the platforms, without a container
// engine. It writes each as an OCI layout below the directory, in place of what was there, and returns a line with its digest and its
// path. The same sources and the same Go give the same digests.
func WriteImages(ctx context.Context, repository, directory string, platforms []v1.Platform) ([]string, error) {
	quickExit := func(ctx context.Context, repository string, platform v1.Platform) (v1.Image, error) {
		return images.QuickExit(ctx, repository, platform)
	}
	// Sources that are no repository have none.
	revision, _ := exec.CommandContext(ctx, "git", "-C", repository, "rev-parse", "HEAD").Output()
	var lines []string
	for _, image := range []struct {
		name string
		make func(ctx context.Context, repository string, platform v1.Platform) (v1.Image, error)
	}{{OperatorImage, images.Operator}, {QuickExitImage, quickExit}} {
		index := ociimage.EmptyIndex()
		for _, platform := range platforms {
			made, err := image.make(ctx, repository, platform)
			if err == nil {
				made, err = withRevision(made, revision)
			}
			if err != nil {
				return nil, fmt.Errorf("build the image %s: %w", image.name, err)
			}
			index = ociimage.Append(index, platform, made)
		}
		target := filepath.Join(directory, image.name)
		if err := ociimage.WriteLayout(target, index); err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, fmt.Errorf("digest the image %s: %w", image.name, err)
		}
		lines = append(lines, digest.String()+" "+target)
	}
	return lines, nil
}

// Digests returns the digests of the images in the directory of layouts, by the names of the images.
func Digests(layouts string) (map[string]string, error) {
	digests := map[string]string{}
	for _, image := range imageNames {
		index, err := ociimage.ReadLayout(filepath.Join(layouts, image))
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, fmt.Errorf("digest the image %s: %w", image, err)
		}
		digests[image] = digest.String()
	}
	return digests, nil
}

// withRevision labels the image with the commit of its sources, if there is one.
func withRevision(image v1.Image, revision []byte) (v1.Image, error) {
	if len(revision) == 0 {
		return image, nil
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := file.Config
	config.Labels["org.opencontainers.image.revision"] = strings.TrimSpace(string(revision))
	return mutate.Config(image, config)
}
