// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// writeLayouts writes two images that differ by a path, and returns their directory and references with digests.
func writeLayouts(t *testing.T, path, repository string) (directory string, references []string) {
	t.Helper()
	directory = t.TempDir()
	for _, layout := range []string{dist.OperatorImage, dist.QuickExitImage} {
		var built []ociimage.PlatformImage
		for _, platform := range dist.ImagePlatforms() {
			image, err := images.QuickExit(nil, []string{"/" + layout, path}, platform)
			if err != nil {
				t.Fatal(err)
			}
			built = append(built, ociimage.PlatformImage{Platform: platform, Image: image})
		}
		index := ociimage.Index(built)
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		references = append(references, repository+layout+":dev@"+digest.String())
		if err := ociimage.WriteLayout(filepath.Join(directory, layout), "latest", index); err != nil {
			t.Fatal(err)
		}
	}
	return directory, references
}

func TestPushMovesTags(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/"
	for _, path := range []string{"/bin/first", "/bin/second"} {
		directory, want := writeLayouts(t, path, repository)
		pushed, err := dist.Push(t.Context(), directory, dist.References{Operator: repository + dist.OperatorImage + ":dev"})
		if err != nil || !slices.Equal(pushed, want) {
			t.Fatalf("pushed %v, %v; want %v", pushed, err, want)
		}
		for _, reference := range want {
			tag, digest, _ := strings.Cut(reference, "@")
			if found, err := crane.Digest(tag); err != nil || found != digest {
				t.Errorf("%s is %s, %v; want %s", tag, found, err, digest)
			}
		}
	}
}

func TestSaveWritesOnePlatform(t *testing.T) {
	layouts, _ := writeLayouts(t, "/bin/sh", "")
	references := dist.References{Operator: "registry.example/operator:dev", QuickExit: "registry.example/other/exit:v2"}
	files, err := dist.Save(layouts, t.TempDir(), references, v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil || len(files) != 2 {
		t.Fatalf("archives are %v, %v", files, err)
	}
	for i, reference := range []string{references.Operator, references.QuickExit} {
		saved, err := crane.LoadTag(files[i], reference)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := saved.ConfigFile(); err != nil || config.Architecture != "arm64" {
			t.Errorf("%s has the platform %v, %v", files[i], config, err)
		}
	}
}

func TestOverlayUsesImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, test := range []struct{ operator, quickExit, want string }{
		{"registry.example:5000/team/operator:dev", "", "registry.example:5000/team/quick-exit:dev"},
		{"registry.example/operator" + digest, "mirror.example/exit" + digest, "mirror.example/exit" + digest},
	} {
		directory, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := dist.WriteOverlay(filepath.Join(repository, "config"), directory, dist.References{Operator: test.operator, QuickExit: test.quickExit}); err != nil {
			t.Fatal(err)
		}
		rendered, err := testenv.Kustomizer().Run(filesys.MakeFsOnDisk(), directory)
		if err != nil {
			t.Fatal(err)
		}
		content, err := rendered.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"image: " + test.operator, "value: " + test.want} {
			if !strings.Contains(string(content), " "+line+"\n") {
				t.Errorf("%+v: no object has %s", test, line)
			}
		}
	}
}

func TestReferencesAreChecked(t *testing.T) {
	layouts, _ := writeLayouts(t, "/bin/sh", "")
	for want, test := range map[string]struct{ layouts, operator string }{
		"set IMG":                               {layouts, ""},
		"set IMG=registry.example/operator:dev": {layouts, "registry.example/operator"},
		"QUICK_EXIT_IMG=registry.example/quick-exit@sha256:…": {layouts, "registry.example/operator@sha256:0"},
		"Operator":          {layouts, "registry.example/Operator:dev"},
		"make docker-build": {t.TempDir(), "registry.example/operator:dev"},
	} {
		references := dist.References{Operator: test.operator}
		_, err := dist.Save(test.layouts, t.TempDir(), references, v1.Platform{OS: "linux", Architecture: "amd64"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want one with %q", test.operator, err, want)
		}
	}
}
