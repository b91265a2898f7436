//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is a container registry on the loopback interface. containerd uses plain HTTP there.
type Registry struct {
	server   *httptest.Server
	mutex    sync.Mutex
	requests []RegistryRequest
}

// RegistryRequest is a request to a registry.
type RegistryRequest struct {
	Method string
	Path   string
	// UserAgent distinguishes containerd's requests from the test's.
	UserAgent string
}

// StartRegistry starts an empty registry until the test ends.
func StartRegistry(t *testing.T) *Registry {
	t.Helper()
	started := &Registry{}
	storage := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	started.server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		started.record(request)
		storage.ServeHTTP(writer, request)
	}))
	t.Cleanup(started.Stop)
	return started
}

// Stop stops the registry: its address then refuses connections. It is idempotent.
func (r *Registry) Stop() { r.server.Close() }

// Reference returns the name of an image in the registry.
func (r *Registry) Reference(image string) string {
	return strings.TrimPrefix(r.server.URL, "http://") + "/" + image
}

// Push writes an image to the registry and returns its reference.
func (r *Registry) Push(t *testing.T, image string, content v1.Image) string {
	t.Helper()
	reference, err := name.NewTag(r.Reference(image), name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, content, remote.WithContext(t.Context())); err != nil {
		t.Fatalf("Push %s: %v", reference, err)
	}
	return reference.String()
}

func (r *Registry) record(request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.requests = append(r.requests, RegistryRequest{Method: request.Method, Path: request.URL.Path, UserAgent: request.UserAgent()})
}

// ManifestRequests returns how many manifests of the repository containerd has requested, by tag or digest.
func (r *Registry) ManifestRequests(repository string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	count := 0
	for _, request := range r.requests {
		if strings.HasPrefix(request.UserAgent, "containerd/") && strings.HasPrefix(request.Path, "/v2/"+repository+"/manifests/") {
			count++
		}
	}
	return count
}
