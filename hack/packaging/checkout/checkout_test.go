// SPDX-License-Identifier: Apache-2.0

package checkout_test

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// writeLayouts writes two images that differ by a path, and returns their directory and digests.
func writeLayouts(t *testing.T, path string) (directory string, digests []string) {
	t.Helper()
	directory = t.TempDir()
	for _, layout := range []string{images.Operator, images.QuickExit} {
		var built []ociimage.PlatformImage
		for _, platform := range images.Platforms() {
			image, err := clusterimages.QuickExit(nil, []string{"/" + layout, path}, platform)
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
		digests = append(digests, digest.String())
		if err := ociimage.WriteLayout(filepath.Join(directory, layout), "latest", index); err != nil {
			t.Fatal(err)
		}
	}
	return directory, digests
}

func TestPushMovesTags(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/"
	for _, path := range []string{"/bin/first", "/bin/second"} {
		directory, digests := writeLayouts(t, path)
		references := checkout.References{Operator: repository + "operator:dev"}
		pushed, err := checkout.Push(t.Context(), directory, references)
		if err != nil || len(pushed) != len(digests) {
			t.Fatalf("pushed %v, %v", pushed, err)
		}
		for i, tag := range []string{repository + "operator:dev", repository + "quick-exit:dev"} {
			if want := tag + "@" + digests[i]; pushed[i] != want {
				t.Errorf("pushed %s, want %s", pushed[i], want)
			}
			reference, err := name.NewTag(tag)
			if err != nil {
				t.Fatal(err)
			}
			if head, err := remote.Head(reference); err != nil || head.Digest.String() != digests[i] {
				t.Errorf("%s is %v, %v; want %s", tag, head, err, digests[i])
			}
		}
	}
}

func TestSaveWritesOnePlatform(t *testing.T) {
	layouts, _ := writeLayouts(t, "/bin/sh")
	references := checkout.References{Operator: "registry.example/operator:dev", QuickExit: "registry.example/other/exit:v2"}
	files, err := checkout.Save(layouts, t.TempDir(), references, v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil || len(files) != 2 {
		t.Fatalf("archives are %v, %v", files, err)
	}
	for i, reference := range []string{references.Operator, references.QuickExit} {
		tag, err := name.NewTag(reference)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := tarball.ImageFromPath(files[i], &tag)
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
	for _, test := range []struct{ references, want checkout.References }{
		{
			checkout.References{Operator: "registry.example:5000/team/operator:dev"},
			checkout.References{Operator: "registry.example:5000/team/operator:dev", QuickExit: "registry.example:5000/team/quick-exit:dev"},
		},
		{
			checkout.References{Operator: "registry.example/operator" + digest, QuickExit: "mirror.example/exit" + digest},
			checkout.References{Operator: "registry.example/operator" + digest, QuickExit: "mirror.example/exit" + digest},
		},
	} {
		directory, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := checkout.WriteOverlay(filepath.Join("..", "..", "..", "config"), directory, test.references); err != nil {
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
		for _, line := range []string{"image: " + test.want.Operator, "value: " + test.want.QuickExit} {
			if !strings.Contains(string(content), " "+line+"\n") {
				t.Errorf("%+v: no object has %s", test.references, line)
			}
		}
	}
}

func TestReferencesAreChecked(t *testing.T) {
	layouts, _ := writeLayouts(t, "/bin/sh")
	for want, test := range map[string]struct{ layouts, operator string }{
		"set IMG":                               {layouts, ""},
		"set IMG=registry.example/operator:dev": {layouts, "registry.example/operator"},
		"QUICK_EXIT_IMG=registry.example/quick-exit@sha256:…": {layouts, "registry.example/operator@sha256:0"},
		"Operator":          {layouts, "registry.example/Operator:dev"},
		"make docker-build": {t.TempDir(), "registry.example/operator:dev"},
	} {
		references := checkout.References{Operator: test.operator}
		_, err := checkout.Save(test.layouts, t.TempDir(), references, v1.Platform{OS: "linux", Architecture: "amd64"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want one with %q", test.operator, err, want)
		}
	}
}
