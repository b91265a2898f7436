// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

func TestBuildIsReproducible(t *testing.T) {
	var digests []string
	for range 2 {
		image, err := quickexit.Build([]byte("program"), quickexit.DefaultPaths(), platform)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %s and %s", digests[0], digests[1])
	}
}

func TestBuildPutsTheProgramAtEveryPath(t *testing.T) {
	paths := []string{"/quick-exit", "/bin/sh", "/usr/local/bin/envoy"}
	image, err := quickexit.Build([]byte("program"), paths, platform)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*tar.Header{}
	contents := mutate.Extract(image)
	defer func() { _ = contents.Close() }()
	reader := tar.NewReader(contents)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files["/"+header.Name] = header
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if string(content) != "program" {
			t.Errorf("%s holds %q", header.Name, content)
		}
	}
	for index, path := range paths {
		header := files[path]
		switch {
		case header == nil:
			t.Errorf("%s is missing", path)
		case header.Mode&0o111 != 0o111:
			t.Errorf("%s has mode %o, not executable by all", path, header.Mode)
		case index == 0 && header.Typeflag != tar.TypeReg:
			t.Errorf("%s is not a regular file", path)
		case index > 0 && (header.Typeflag != tar.TypeLink || header.Linkname != "quick-exit"):
			t.Errorf("%s is not a hard link to the program but %c to %q", path, header.Typeflag, header.Linkname)
		}
	}
}

func TestBuildConfiguresTheImage(t *testing.T) {
	image, err := quickexit.Build([]byte("program"), quickexit.DefaultPaths(), v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"})
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.OS != "linux" || file.Architecture != "arm64" || file.Variant != "v8" {
		t.Errorf("platform is %s/%s/%s", file.OS, file.Architecture, file.Variant)
	}
	if len(file.Config.Entrypoint) != 1 || file.Config.Entrypoint[0] != "/quick-exit" {
		t.Errorf("entrypoint is %v", file.Config.Entrypoint)
	}
	if file.Config.User != quickexit.User {
		t.Errorf("user is %q", file.Config.User)
	}
	if len(file.Config.Env) != 1 || file.Config.Env[0] != "PATH="+quickexit.SearchPath {
		t.Errorf("environment is %v", file.Config.Env)
	}
}

func TestBuildRefusesUnusablePaths(t *testing.T) {
	for name, paths := range map[string][]string{
		"none":          nil,
		"relative":      {"bin/sh"},
		"the root":      {"/"},
		"not clean":     {"/bin/../sh"},
		"twice":         {"/bin/sh", "/bin/sh"},
		"below another": {"/bin", "/bin/sh"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := quickexit.Build([]byte("program"), paths, platform); err == nil {
				t.Errorf("%v were accepted", paths)
			}
		})
	}
}
