// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sidecar-termination/operator/internal/settings"
)

// Push uploads the index and everything that it refers to, with the user's credentials of container engines. It moves a tag
// that exists.
func Push(ctx context.Context, reference name.Reference, index v1.ImageIndex) error {
	err := remote.WriteIndex(reference, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent(settings.Name), remote.WithTransport(encrypted{remote.DefaultTransport}))
	if err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	return nil
}

// encrypted is a transport that refuses plain HTTP, except to loopback addresses. The registry client falls back to plain
// HTTP for private addresses and would send credentials with it.
type encrypted struct{ http.RoundTripper }

func (e encrypted) RoundTrip(request *http.Request) (*http.Response, error) {
	host := request.URL.Hostname()
	if request.URL.Scheme != "https" && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("refuse to speak plain HTTP with %s", request.URL.Host)
	}
	return e.RoundTripper.RoundTrip(request)
}
