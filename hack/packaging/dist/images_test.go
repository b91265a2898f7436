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
)

// machines are the platforms of the images, and the machines that run their programs.
var machines = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}

// The images are reproducible and run on every platform.
func TestImages(t *testing.T) {
	directory := t.TempDir()
	first, err := dist.WriteImages(t.Context(), module(t), directory, dist.ImagePlatforms())
	if err != nil {
		t.Fatal(err)
	}
	second, err := dist.WriteImages(t.Context(), module(t), directory, dist.ImagePlatforms())
	if err != nil || !slices.Equal(first, second) {
		t.Fatalf("built %v, and then %v, %v", first, second, err)
	}
	for i, name := range []string{dist.OperatorImage, dist.QuickExitImage} {
		layout := filepath.Join(directory, name)
		index, err := ociimage.ReadLayout(layout)
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || first[i] != digest.String()+" "+layout {
			t.Errorf("%s has the digest %s, %v; %q was reported", layout, digest, err, first[i])
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
	if file.OS+"/"+file.Architecture != platform || len(config.Entrypoint) != 1 || len(config.Cmd) != 0 || config.Labels["org.opencontainers.image.title"] != name {
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
