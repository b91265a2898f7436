// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/internal/settings"
)

// machines are the platforms of the images, and the machines that run their programs.
var machines = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}

var imageNames = []string{dist.OperatorImage, dist.QuickExitImage}

// writeImages builds the images from another directory at each call, and returns the directory of the layouts and the digests.
func writeImages(t *testing.T, platforms []v1.Platform) (directory string, digests []string) {
	t.Helper()
	directory = t.TempDir()
	lines, err := dist.WriteImages(t.Context(), module(t), directory, platforms)
	if err != nil || len(lines) != len(imageNames) {
		t.Fatalf("built %v, %v", lines, err)
	}
	for i, name := range imageNames {
		digest, layout, _ := strings.Cut(lines[i], " ")
		if layout != filepath.Join(directory, name) {
			t.Errorf("%s was written to %s", name, layout)
		}
		digests = append(digests, digest)
	}
	return directory, digests
}

// The images are reproducible and run on every platform.
func TestImages(t *testing.T) {
	directory, first := writeImages(t, dist.ImagePlatforms())
	_, second := writeImages(t, dist.ImagePlatforms())
	for i, name := range imageNames {
		index, err := ociimage.ReadLayout(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || digest.String() != first[i] || first[i] != second[i] {
			t.Errorf("%s has the digest %s, %v; %s was reported, and %s in the second build", name, digest, err, first[i], second[i])
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != len(machines) {
			t.Errorf("%s has %d platforms, want %d", name, len(manifest.Manifests), len(machines))
		}
		for _, descriptor := range manifest.Manifests {
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				t.Fatal(err)
			}
			requireRuns(t, image, name, descriptor.Platform.String())
		}
	}
}

// requireRuns requires that the image runs a static program as a user who is not root: runAsNonRoot requires a number.
func requireRuns(t *testing.T, image v1.Image, name, platform string) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config := file.Config
	if file.OS+"/"+file.Architecture != platform || len(config.Entrypoint) != 1 || len(config.Cmd) != 0 || config.Labels["org.opencontainers.image.title"] != name ||
		config.Labels["org.opencontainers.image.version"] != settings.Release || len(config.Labels["org.opencontainers.image.revision"]) != 40 {
		t.Fatalf("%s for %s has the configuration %+v", name, platform, file)
	}
	for id := range strings.SplitSeq(config.User, ":") {
		if number, err := strconv.Atoi(id); err != nil || number == 0 {
			t.Errorf("%s for %s runs as %q", name, platform, config.User)
		}
	}
	contents := mutate.Extract(image)
	defer func() { _ = contents.Close() }()
	for reader := tar.NewReader(contents); ; {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("%s for %s has no %s: %v", name, platform, config.Entrypoint[0], err)
		}
		if "/"+header.Name != config.Entrypoint[0] {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		loader := slices.ContainsFunc(program.Progs, func(segment *elf.Prog) bool { return segment.Type == elf.PT_INTERP })
		if program.Machine != machines[platform] || loader || header.Mode&0o111 != 0o111 {
			t.Errorf("%s for %s: its program is for %s, needs a loader: %t, has mode %o", name, platform, program.Machine, loader, header.Mode)
		}
		return
	}
}
