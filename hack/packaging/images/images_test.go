// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/images"
)

// machines are the platforms of the images, and the machines that run their programs.
var machines = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}

// write builds the images from a module in another directory at each call.
func write(t *testing.T) []images.Built {
	t.Helper()
	const program = "package main\n\nfunc main() {}\n"
	module, quickExit := t.TempDir(), filepath.FromSlash(clusterimages.QuickExitProgram)
	if err := os.MkdirAll(filepath.Join(module, quickExit), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod": "module example.com/program\n", "main.go": program, filepath.Join(quickExit, "main.go"): program,
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built, err := images.Write(t.Context(), module, t.TempDir(), "v1", images.Platforms())
	if err != nil {
		t.Fatal(err)
	}
	if len(built) != 2 || filepath.Base(built[0].Directory) != images.Operator || filepath.Base(built[1].Directory) != images.QuickExit {
		t.Fatalf("images are %+v", built)
	}
	return built
}

// The images are reproducible and run on every platform.
func TestImages(t *testing.T) {
	second := write(t)
	for i, built := range write(t) {
		index, err := ociimage.ReadLayout(built.Directory)
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || digest != built.Digest || digest != second[i].Digest {
			t.Errorf("%s has the digest %s, %v; %s was reported, and %s in the second build", built.Directory, digest, err, built.Digest, second[i].Digest)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != len(machines) {
			t.Errorf("%s has %d platforms, want %d", built.Directory, len(manifest.Manifests), len(machines))
		}
		for _, descriptor := range manifest.Manifests {
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				t.Fatal(err)
			}
			requireRuns(t, image, filepath.Base(built.Directory), descriptor.Platform.String())
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
