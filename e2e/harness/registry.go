//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Registry is a container registry on the loopback interface. containerd uses plain HTTP there.
type Registry struct{ server *httptest.Server }

// StartRegistry starts an empty registry until the test ends.
func StartRegistry(t *testing.T) *Registry {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &Registry{server}
}

// Reference returns the name of an image in the registry.
func (r *Registry) Reference(image string) string {
	return strings.TrimPrefix(r.server.URL, "http://") + "/" + image
}

// Push writes an image to the registry and returns its reference.
func (r *Registry) Push(t *testing.T, image string, content v1.Image) string {
	t.Helper()
	reference := r.Reference(image)
	if err := crane.Push(content, reference, crane.WithContext(t.Context())); err != nil {
		t.Fatalf("Push %s: %v", reference, err)
	}
	return reference
}
