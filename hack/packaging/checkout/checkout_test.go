// SPDX-License-Identifier: Apache-2.0

package checkout_test

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/testenv"
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
		index, err := ociimage.Index(built)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
		if err := ociimage.WriteLayout(filepath.Join(directory, layout), "latest", index, false); err != nil {
			t.Fatal(err)
		}
	}
	return directory, digests
}

func TestPushMovesTags(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/"
	references := checkout.References{Operator: repository + "operator:dev"}
	for _, path := range []string{"/bin/first", "/bin/second"} {
		directory, digests := writeLayouts(t, path)
		got, err := checkout.Push(t.Context(), directory, references, ociimage.PushOptions{Replace: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{repository + "operator:dev@" + digests[0], repository + "quick-exit:dev@" + digests[1]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pushed images (-want +got):\n%s", diff)
		}
		for i, tag := range []string{repository + "operator:dev", repository + "quick-exit:dev"} {
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
	directory := t.TempDir()
	references := checkout.References{Operator: "registry.example/operator:dev", QuickExit: "registry.example/other/exit:v2"}
	files, err := checkout.Save(layouts, directory, references, v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(directory, images.Operator+".tar"), filepath.Join(directory, images.QuickExit+".tar")}, files); diff != "" {
		t.Fatalf("archives (-want +got):\n%s", diff)
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
		config, err := saved.ConfigFile()
		if err != nil || config.Architecture != "arm64" {
			t.Errorf("%s has the platform %v, %v", files[i], config, err)
		}
	}
}

func TestOverlayUsesImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, test := range map[string]struct {
		references checkout.References
		want       []string
	}{
		"tag": {
			checkout.References{Operator: "registry.example:5000/team/operator:dev"},
			[]string{"registry.example:5000/team/operator:dev", "registry.example:5000/team/quick-exit:dev"},
		},
		"both": {
			checkout.References{Operator: "registry.example/operator:dev", QuickExit: "mirror.example/exit:v1"},
			[]string{"registry.example/operator:dev", "mirror.example/exit:v1"},
		},
		"digests": {
			checkout.References{Operator: "registry.example/operator@" + digest, QuickExit: "mirror.example/exit@" + digest},
			[]string{"registry.example/operator@" + digest, "mirror.example/exit@" + digest},
		},
	} {
		t.Run(name, func(t *testing.T) {
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
			resource, err := rendered.GetById(resid.NewResIdWithNamespace(resid.NewGvk("apps", "v1", "Deployment"), settings.DeploymentName, settings.Namespace))
			if err != nil {
				t.Fatal(err)
			}
			var deployment appsv1.Deployment
			if err := yaml.Unmarshal([]byte(resource.MustYaml()), &deployment); err != nil {
				t.Fatal(err)
			}
			manager := deployment.Spec.Template.Spec.Containers[0]
			got := []string{manager.Image}
			for _, variable := range manager.Env {
				if variable.Name == "QUICK_EXIT_IMAGE" {
					got = append(got, variable.Value)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferencesAreChecked(t *testing.T) {
	layouts, _ := writeLayouts(t, "/bin/sh")
	for name, test := range map[string]struct {
		layouts    string
		references checkout.References
		want       string
	}{
		"none":          {layouts, checkout.References{}, "set IMG"},
		"no tag":        {layouts, checkout.References{Operator: "registry.example/operator"}, "set IMG=registry.example/operator:dev"},
		"digest alone":  {layouts, checkout.References{Operator: "registry.example/operator@sha256:0"}, "QUICK_EXIT_IMG=registry.example/quick-exit@sha256:…"},
		"invalid":       {layouts, checkout.References{Operator: "registry.example/Operator:dev"}, "Operator"},
		"nothing built": {t.TempDir(), checkout.References{Operator: "registry.example/operator:dev"}, "make docker-build"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkout.Save(test.layouts, t.TempDir(), test.references, v1.Platform{OS: "linux", Architecture: "amd64"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}
