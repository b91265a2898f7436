// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/testenv"
)

func TestPushMovesTags(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	team := strings.TrimPrefix(server.URL, "http://") + "/team/"
	for _, platforms := range [][]v1.Platform{dist.ImagePlatforms(), dist.ImagePlatforms()[:1]} {
		layouts, digests := writeImages(t, platforms)
		pushed, err := dist.Push(t.Context(), layouts, dist.References{Operator: team + dist.OperatorImage + ":dev"})
		if err != nil || len(pushed) != len(digests) {
			t.Fatalf("pushed %v, %v", pushed, err)
		}
		for i, digest := range digests {
			tag := team + imageNames[i] + ":dev"
			if found, err := crane.Digest(tag); err != nil || found != digest || pushed[i] != tag+"@"+digest {
				t.Errorf("%s is %s, %v, and %s was reported; want %s", tag, found, err, pushed[i], digest)
			}
		}
	}
}

func TestSaveWritesOnePlatform(t *testing.T) {
	layouts, _ := writeImages(t, dist.ImagePlatforms())
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
		if err := dist.WriteOverlay(filepath.Join(repository, "config", "default"), directory, dist.References{Operator: test.operator, QuickExit: test.quickExit}); err != nil {
			t.Fatal(err)
		}
		content, err := yaml.Marshal(testenv.Render(t, directory))
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
	for want, operator := range map[string]string{
		"set IMG":                               "",
		"set IMG=registry.example/operator:dev": "registry.example/operator",
		"QUICK_EXIT_IMG=registry.example/quick-exit@sha256:…": "registry.example/operator@sha256:0",
		"Operator":          "registry.example/Operator:dev",
		"make docker-build": "registry.example/operator:dev",
	} {
		_, err := dist.Save(t.TempDir(), t.TempDir(), dist.References{Operator: operator}, v1.Platform{OS: "linux", Architecture: "amd64"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want one with %q", operator, err, want)
		}
	}
}
