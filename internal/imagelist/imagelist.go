// SPDX-License-Identifier: Apache-2.0

// Package imagelist holds an administrator's list of quick-exit images. It parses and compares references, and pulls
// nothing: no registry is asked, and what a tag points to is not known here.
package imagelist

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// List says which quick-exit images may be used. The zero value permits all.
type List struct {
	// Entries are the images that policies may name; empty permits all.
	Entries []Entry
	// DigestRequired has an image named by its digest, so that it cannot be replaced behind a tag.
	DigestRequired bool
	// EnvironmentListed holds images that containers name by their environment variables to the same. Without it they
	// are the pod author's own, who might have run them anyway.
	EnvironmentListed bool
}

// Entry permits images: one, those of a repository, or those of all repositories below a path.
type Entry struct {
	text string
	// registry is compared whole, so that registry.example does not permit registry.example.evil.test.
	registry string
	// repository is the path in the registry. With below set it is a prefix, of whole path elements.
	repository string
	below      bool
	// identifier is the tag or digest that is permitted; empty permits all.
	identifier string
}

// String returns the entry as it was written.
func (e Entry) String() string { return e.text }

// below is the end of an entry that permits all repositories below a path.
const below = "/*"

// ParseEntry reads registry.example/team/quick-exit (any tag and digest), the same with a tag or a digest (that one
// alone), or registry.example/team/* (every repository below). A reference without a registry is one of Docker Hub, as
// container runtimes have it. One element that may be meant for a registry and is taken for a repository, or the other way
// round, is refused.
func ParseEntry(text string) (Entry, error) {
	if path, ok := strings.CutSuffix(text, below); ok {
		return parseBelow(text, path)
	}
	if strings.Contains(text, "*") {
		return Entry{}, fmt.Errorf("parse %q: * may only stand for all repositories below a path, as in registry.example/team/*", text)
	}
	if alone, _, _ := strings.Cut(text, ":"); !strings.Contains(text, "/") && isHost(alone) {
		return Entry{}, fmt.Errorf("parse %q: it names no repository; for all of a registry write %s/*, and for one of Docker Hub docker.io/library/%s",
			text, text, text)
	}
	entry := Entry{text: text}
	if repository, err := name.NewRepository(text); err == nil {
		entry.registry, entry.repository = repository.RegistryStr(), repository.RepositoryStr()
		return entry, nil
	}
	reference, err := name.ParseReference(text)
	if err != nil {
		return Entry{}, fmt.Errorf("parse %q: %w", text, err)
	}
	entry.registry, entry.repository, entry.identifier = reference.Context().RegistryStr(), reference.Context().RepositoryStr(), reference.Identifier()
	return entry, nil
}

// parseBelow reads an entry for all repositories below the path.
func parseBelow(text, path string) (Entry, error) {
	if !strings.Contains(path, "/") && !isHost(path) {
		return Entry{}, fmt.Errorf("parse %q: %q is no registry, for it has neither dot nor port; for those of Docker Hub write docker.io/%s/*",
			text, path, path)
	}
	// Two elements more, for Docker Hub's repositories of one element have another name.
	const some = "x/x"
	repository, err := name.NewRepository(path + "/" + some)
	if err != nil {
		return Entry{}, fmt.Errorf("parse %q: %w", text, err)
	}
	return Entry{
		text: text, below: true,
		registry: repository.RegistryStr(), repository: strings.TrimSuffix(repository.RepositoryStr(), some),
	}, nil
}

// isHost reports whether container runtimes take the first of several elements for a registry.
func isHost(element string) bool {
	return element == "localhost" || strings.ContainsAny(element, ".:")
}

// Check returns why the list does not permit the image, or nil. Only references are compared.
func (l List) Check(image string) error {
	if len(l.Entries) == 0 && !l.DigestRequired {
		return nil
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return fmt.Errorf("parse %q: %w", image, err)
	}
	if _, ok := reference.(name.Digest); !ok && l.DigestRequired {
		return errors.New("it is not named by its digest")
	}
	for _, entry := range l.Entries {
		if entry.permits(reference) {
			return nil
		}
	}
	if len(l.Entries) > 0 {
		return errors.New("it is not on the list of the operator's administrator")
	}
	return nil
}

func (e Entry) permits(reference name.Reference) bool {
	repository := reference.Context()
	switch {
	case repository.RegistryStr() != e.registry:
		return false
	case e.below:
		return strings.HasPrefix(repository.RepositoryStr(), e.repository)
	}
	return repository.RepositoryStr() == e.repository && (e.identifier == "" || e.identifier == reference.Identifier())
}
