// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sidecar-termination/operator/internal/settings"
)

// PushOptions are how an image is pushed.
type PushOptions struct {
	// Keychain has the credentials. Nil means the user's credentials of container engines.
	Keychain authn.Keychain
	// PlainHTTP permits requests without TLS to any host. Loopback addresses do not need it.
	PlainHTTP bool
	// Replace permits moving an existing tag.
	Replace bool
}

// Push uploads the index and everything that it refers to. It does nothing if the reference exists with the same digest.
// Without Replace, a reference with another digest is an error that wraps fs.ErrExist.
func Push(ctx context.Context, reference name.Reference, index v1.ImageIndex, options PushOptions) error {
	keychain := options.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	remoteOptions := []remote.Option{
		remote.WithContext(ctx),
		remote.WithAuthFromKeychain(keychain),
		remote.WithUserAgent(settings.Name),
		remote.WithTransport(encrypted{inner: remote.DefaultTransport, plainHTTP: options.PlainHTTP}),
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("digest the image index: %w", err)
	}
	if !options.Replace {
		current, err := remote.Head(reference, remoteOptions...)
		switch {
		case err == nil && current.Digest == digest:
			return nil
		case err == nil:
			return fmt.Errorf("push %s, which has digest %s: %w", reference, current.Digest, fs.ErrExist)
		case !absent(err):
			return fmt.Errorf("look for %s: %w", reference, err)
		}
	}
	if err := remote.WriteIndex(reference, index, remoteOptions...); err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	return nil
}

// absent reports whether a registry's answer may mean that a reference does not exist. Many registries deny access to a
// repository that does not exist. If access is really denied, the push itself fails.
func absent(err error) bool {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return false
}
