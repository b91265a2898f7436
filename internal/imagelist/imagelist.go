// SPDX-License-Identifier: Apache-2.0

// Package imagelist holds an administrator's list of quick-exit images. It parses and compares references. It contacts no
// registry, so it does not know what a tag points to.
package imagelist

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// List says which quick-exit images may be used. The zero value permits all.
type List struct {
	// Entries are the images that policies and environment variables may name; empty permits all.
	Entries []Entry
}

// Entry permits images: one, those of a repository, or those of all repositories below a path.
type Entry struct {
	text string
	// registry must match completely, so that registry.example does not permit registry.example.evil.test.
	registry string
	// repository is the path in the registry, or with below a prefix of whole path elements.
	repository string
	below      bool
	// identifier is the permitted tag or digest; empty permits all.
	identifier string
}

// String returns the entry as it was written.
func (e Entry) String() string { return e.text }

// below is the end of an entry that permits all repositories below a path.
const below = "/*"

// ParseEntry parses registry.example/team/quick-exit (any tag and digest), the same with a tag or a digest (only that
// one), or registry.example/team/* (every repository below). As in container runtimes, a reference without a registry
// means Docker Hub. A single element that may be meant as a registry or as a repository is an error.
func ParseEntry(text string) (Entry, error) {
	if path, ok := strings.CutSuffix(text, below); ok {
		return parseBelow(text, path)
	}
	if strings.Contains(text, "*") {
		return Entry{}, fmt.Errorf("parse %q: * may only be the last element, as in registry.example/team/*", text)
	}
	if alone, _, _ := strings.Cut(text, ":"); !strings.Contains(text, "/") && isHost(alone) {
		return Entry{}, fmt.Errorf("parse %q: it has no repository; for a whole registry write %s/*, for a Docker Hub image docker.io/library/%s",
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

// parseBelow parses an entry for all repositories below the path.
func parseBelow(text, path string) (Entry, error) {
	if !strings.Contains(path, "/") && !isHost(path) {
		return Entry{}, fmt.Errorf("parse %q: %q is not a registry, because it has neither a dot nor a port; for Docker Hub write docker.io/%s/*",
			text, path, path)
	}
	// Two more elements, because Docker Hub inserts "library" before a repository of one element.
	const placeholder = "x/x"
	repository, err := name.NewRepository(path + "/" + placeholder)
	if err != nil {
		return Entry{}, fmt.Errorf("parse %q: %w", text, err)
	}
	return Entry{
		text: text, below: true,
		registry: repository.RegistryStr(), repository: strings.TrimSuffix(repository.RepositoryStr(), placeholder),
	}, nil
}

// isHost reports whether container runtimes read the element as a registry if others follow it.
func isHost(element string) bool {
	return element == "localhost" || strings.ContainsAny(element, ".:")
}

// Check returns why the list does not permit the image, or nil. It compares references only.
func (l List) Check(image string) error {
	if len(l.Entries) == 0 {
		return nil
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return fmt.Errorf("parse %q: %w", image, err)
	}
	for _, entry := range l.Entries {
		if entry.permits(reference) {
			return nil
		}
	}
	return errors.New("it is not on the list of the operator's administrator")
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
