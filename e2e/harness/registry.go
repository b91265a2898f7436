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

// StartRegistry starts an empty registry on the loopback interface until the test ends, and returns the prefix of its images. containerd
// uses plain HTTP there.
func StartRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/"
}

// Push writes an image to its registry.
func (t *Test) Push(reference string, content v1.Image) {
	t.Helper()
	if err := crane.Push(content, reference, crane.WithContext(t.Context())); err != nil {
		t.Fatalf("Push %s: %v", reference, err)
	}
}
