// SPDX-License-Identifier: Apache-2.0

//go:build packaging

package images_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/images"
)

// machines are the platforms of the images, and what their programs are made for.
var machines = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}

// module returns another directory at each call, with a module whose program is compiled in seconds.
func module(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := os.CopyFS(directory, os.DirFS(filepath.Join("..", "testdata", "program"))); err != nil {
		t.Fatal(err)
	}
	return directory
}

func write(t *testing.T) []images.Built {
	t.Helper()
	built, err := images.Write(t.Context(), module(t), t.TempDir(), "v1", images.Platforms())
	if err != nil {
		t.Fatal(err)
	}
	if len(built) != 2 || filepath.Base(built[0].Directory) != "sidecar-termination-operator" || filepath.Base(built[1].Directory) != "quick-exit" {
		t.Fatalf("images are %+v", built)
	}
	return built
}

// The directories of the sources and of the images do not change the digests.
func TestImagesAreReproducible(t *testing.T) {
	first, second := write(t), write(t)
	for i := range first {
		if first[i].Digest != second[i].Digest {
			t.Errorf("%s has the digests %s and %s", filepath.Base(first[i].Directory), first[i].Digest, second[i].Digest)
		}
	}
}

func TestLayoutsHaveTheReportedDigests(t *testing.T) {
	for _, built := range write(t) {
		index, err := ociimage.ReadLayout(built.Directory)
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || digest != built.Digest {
			t.Errorf("%s has the digest %s, %v, and %s was reported", built.Directory, digest, err, built.Digest)
		}
	}
}

func TestImagesRunOnEveryPlatformAsNobodySpecial(t *testing.T) {
	for _, built := range write(t) {
		name := filepath.Base(built.Directory)
		var platforms []string
		for platform, image := range platformImages(t, built) {
			platforms = append(platforms, platform)
			file, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if file.OS+"/"+file.Architecture != platform {
				t.Errorf("%s for %s says that it is for %s/%s", name, platform, file.OS, file.Architecture)
			}
			if len(file.Config.Entrypoint) != 1 || len(file.Config.Cmd) != 0 {
				t.Fatalf("%s for %s runs %v %v", name, platform, file.Config.Entrypoint, file.Config.Cmd)
			}
			// runAsNonRoot wants a number.
			user, group, _ := strings.Cut(file.Config.User, ":")
			for _, id := range []string{user, group} {
				if number, err := strconv.Atoi(id); err != nil || number == 0 {
					t.Errorf("%s for %s runs as %q", name, platform, file.Config.User)
				}
			}
			for key, want := range map[string]string{
				"org.opencontainers.image.title":    name,
				"org.opencontainers.image.source":   "https://github.com/sidecar-termination/operator",
				"org.opencontainers.image.licenses": "Apache-2.0",
			} {
				if got := file.Config.Labels[key]; got != want {
					t.Errorf("%s for %s has the label %s=%q, want %q", name, platform, key, got, want)
				}
			}
			requireStaticProgram(t, image, file.Config.Entrypoint[0], machines[platform])
		}
		slices.Sort(platforms)
		if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
			t.Errorf("%s is for %v, want %v", name, platforms, want)
		}
	}
}

func TestAProgramThatCannotBeCompiledIsAnError(t *testing.T) {
	_, err := images.Write(t.Context(), t.TempDir(), t.TempDir(), "v1", images.Platforms())
	if err == nil || !strings.Contains(err.Error(), "compile for linux/amd64") {
		t.Errorf("error is %v", err)
	}
}

func platformImages(t *testing.T, built images.Built) map[string]v1.Image {
	t.Helper()
	index, err := ociimage.ReadLayout(built.Directory)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		found[descriptor.Platform.String()] = image
	}
	return found
}

// requireStaticProgram requires that the image has at the path a program for the machine that needs no loader.
func requireStaticProgram(t *testing.T, image v1.Image, path string, machine elf.Machine) {
	t.Helper()
	contents := mutate.Extract(image)
	defer func() { _ = contents.Close() }()
	for reader := tar.NewReader(contents); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the image has no %s", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if "/"+header.Name != path {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		loader := slices.ContainsFunc(program.Progs, func(segment *elf.Prog) bool { return segment.Type == elf.PT_INTERP })
		if program.Machine != machine || loader || header.Mode&0o111 != 0o111 {
			t.Errorf("%s is for %s, needs a loader: %t, has mode %o; want one for %s", path, program.Machine, loader, header.Mode, machine)
		}
		return
	}
}
