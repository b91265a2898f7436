// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/quickexit/image"
	"github.com/sidecar-termination/operator/internal/quickexit/program"
)

func indexDigest(t *testing.T, paths []string) v1.Hash {
	t.Helper()
	index, err := image.Index(paths, image.Platforms())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestDigestIsReproducible(t *testing.T) {
	paths := quickexit.DefaultPaths()
	want := indexDigest(t, paths)
	slices.Reverse(paths)
	if got := indexDigest(t, append(paths, "/bin/sh")); got != want {
		t.Errorf("digests are %s and %s", want, got)
	}
	if got := indexDigest(t, append(paths, "/bin/another")); got == want {
		t.Error("another path gives the same digest")
	}
}

func TestPathsLinkToProgram(t *testing.T) {
	paths := append(quickexit.DefaultPaths(), "/opt/own/proxy")
	for _, platform := range image.Platforms() {
		built, err := image.Build(paths, platform)
		if err != nil {
			t.Fatal(err)
		}
		binary, err := program.For(platform.Architecture)
		if err != nil {
			t.Fatal(err)
		}
		headers, content := read(t, built)
		if !bytes.Equal(content, binary) {
			t.Errorf("%s: %d bytes are in the image, and the program has %d", platform, len(content), len(binary))
		}
		for _, path := range paths {
			header := headers[path]
			if header == nil {
				t.Errorf("%s: %s is missing", platform, path)
				continue
			}
			if header.Mode != 0o755 || !header.ModTime.IsZero() && header.ModTime.Unix() != 0 || header.Uid != 0 {
				t.Errorf("%s: %s has mode %o, time %s and owner %d", platform, path, header.Mode, header.ModTime, header.Uid)
			}
			if isLink := header.Typeflag == tar.TypeLink && header.Linkname == "quick-exit"; isLink == (path == quickexit.Entrypoint) {
				t.Errorf("%s: %s is of type %c and links to %q", platform, path, header.Typeflag, header.Linkname)
			}
			delete(headers, path)
		}
		for path, header := range headers {
			if header.Typeflag != tar.TypeDir || header.Mode != 0o755 {
				t.Errorf("%s: %s is in the image with type %c and mode %o", platform, path, header.Typeflag, header.Mode)
			}
		}
	}
}

func TestImageConfigIsUnprivileged(t *testing.T) {
	for _, platform := range image.Platforms() {
		built, err := image.Build(nil, platform)
		if err != nil {
			t.Fatal(err)
		}
		file, err := built.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if file.OS != "linux" || file.Architecture != platform.Architecture {
			t.Errorf("platform is %s/%s, want %s", file.OS, file.Architecture, platform)
		}
		if !slices.Equal(file.Config.Entrypoint, []string{"/quick-exit"}) || len(file.Config.Cmd) != 0 {
			t.Errorf("entrypoint is %v with %v", file.Config.Entrypoint, file.Config.Cmd)
		}
		if file.Config.User != "65532:65532" {
			t.Errorf("user is %q, want a number that is not 0", file.Config.User)
		}
		if !slices.Equal(file.Config.Env, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}) {
			t.Errorf("environment is %v", file.Config.Env)
		}
		if !file.Created.IsZero() && file.Created.Unix() != 0 {
			t.Errorf("created at %s", file.Created)
		}
	}
}

func TestIndexListsOnlyPlatforms(t *testing.T) {
	index, err := image.Index(nil, image.Platforms())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		if descriptor.ArtifactType != "" {
			t.Errorf("%s has artifactType %q; some registries do not treat it as an image", descriptor.Platform, descriptor.ArtifactType)
		}
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms are %v", platforms)
	}
}

func TestBuildErrors(t *testing.T) {
	amd64 := v1.Platform{OS: "linux", Architecture: "amd64"}
	for name, test := range map[string]struct {
		paths    []string
		platform v1.Platform
	}{
		"a relative path":      {[]string{"bin/sh"}, amd64},
		"files as directories": {[]string{"/bin", "/bin/sh"}, amd64},
		"another system":       {nil, v1.Platform{OS: "windows", Architecture: "amd64"}},
		"another architecture": {nil, v1.Platform{OS: "linux", Architecture: "s390x"}},
	} {
		if _, err := image.Build(test.paths, test.platform); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// read returns the headers of everything in an image by path, and the content of its one regular file.
func read(t *testing.T, built v1.Image) (headers map[string]*tar.Header, content []byte) {
	t.Helper()
	archive := mutate.Extract(built)
	defer func() { _ = archive.Close() }()
	headers = map[string]*tar.Header{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return headers, content
		}
		if err != nil {
			t.Fatal(err)
		}
		headers["/"+header.Name] = header
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if content != nil {
			t.Errorf("%s is a second regular file", header.Name)
		}
		if content, err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
