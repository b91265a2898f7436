// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const user, password = "somebody", "secret"

// startRegistry returns the address of a local registry that requires a password, and adds the password to the test's
// container engine configuration.
func startRegistry(t *testing.T) string {
	t.Helper()
	storage := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if name, given, ok := request.BasicAuth(); !ok || name != user || given != password {
			writer.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(writer, "no", http.StatusUnauthorized)
			return
		}
		storage.ServeHTTP(writer, request)
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	configuration := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, address, user, password)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "config.json"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", directory)
	return address
}

func TestPush(t *testing.T) {
	image := startRegistry(t) + "/team/quick-exit:v1"
	got := run(t, "", "--push", image, "-o", "json").report(t)
	if want := image + "@" + got.Digest; got.Image != want {
		t.Errorf("image is reported as %s, want %s", got.Image, want)
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(reference, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pulled); err != nil {
		t.Errorf("validate what was pulled: %v", err)
	}
	if digest, err := pulled.Digest(); err != nil || digest.String() != got.Digest {
		t.Errorf("pulled %s, %v, and %s was reported", digest, err, got.Digest)
	}
	manifest, err := pulled.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Errorf("pulled %+v, %v; want two platforms", manifest, err)
	}
}

func TestPushMovesTagsOnlyWithForce(t *testing.T) {
	image := startRegistry(t) + "/quick-exit:v1"
	for _, step := range []struct {
		arguments []string
		wantError string
	}{
		{nil, ""},
		{nil, ""},
		{[]string{"--path=/opt/x"}, "file already exists (--force replaces it)"},
		{[]string{"--path=/opt/x", "--force"}, ""},
	} {
		got := run(t, "", append(step.arguments, "--push", image)...)
		switch {
		case step.wantError == "" && got.err != nil:
			t.Errorf("%v: %v", step.arguments, got.err)
		case step.wantError != "" && (got.err == nil || !strings.Contains(got.err.Error(), step.wantError)):
			t.Errorf("%v: error is %v, want %q", step.arguments, got.err, step.wantError)
		}
	}
}

func TestPushWithoutCredentials(t *testing.T) {
	image := startRegistry(t) + "/quick-exit:v1"
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	got := run(t, "", "--push", image)
	if got.err == nil || !strings.Contains(got.err.Error(), "--push: push "+image) || !strings.Contains(got.err.Error(), "401") {
		t.Errorf("error is %v", got.err)
	}
}
