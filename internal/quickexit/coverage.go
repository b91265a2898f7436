// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"slices"
	"strings"
)

// Entries of a coverage that are not paths.
const (
	// Default stands for DefaultPaths.
	Default = "default"
	// Everything stands for every path: the image runs the program whatever the command is.
	Everything = "*"
)

// MaxEntries is the maximum number of entries of a coverage. Further entries have no effect.
const MaxEntries = 1024

// Coverage is the set of paths at which an image has the program. Every image also has the entrypoint. The zero value
// means that nothing is declared about the image: it has DefaultPaths.
//
// A coverage is immutable. Copies share its data, and a lookup takes the same time for any number of entries. Compare
// coverages with Equal.
type Coverage struct {
	_   [0]func() // no ==, which would compare pointers
	set *entrySet
}

// entrySet is the parsed form of the entries.
type entrySet struct {
	entries              []string // as written
	paths                map[string]struct{}
	defaults, everything bool
}

// CoverageOf returns the coverage of an image with exactly these entries. An entry is an absolute path, Default or
// Everything. Entries that ValidateEntries rejects match no command. No entries give the zero value.
func CoverageOf[E ~string](entries ...E) Coverage {
	if len(entries) == 0 {
		return Coverage{}
	}
	entries = entries[:min(len(entries), MaxEntries)]
	set := &entrySet{entries: make([]string, 0, len(entries)), paths: make(map[string]struct{}, len(entries))}
	for _, e := range entries {
		entry := string(e)
		set.entries = append(set.entries, entry)
		switch {
		case entry == Default:
			set.defaults = true
		case entry == Everything:
			set.everything = true
		case validatePath(entry) == nil:
			set.paths[entry] = struct{}{}
		}
	}
	return Coverage{set: set}
}

// ValidateEntries fails if an entry has no effect. The error names the first one and says what an entry must be.
func ValidateEntries(entries []string) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("%d entries are more than the maximum of %d; list fewer", len(entries), MaxEntries)
	}
	for _, entry := range entries {
		if err := validateEntry(entry); err != nil {
			return fmt.Errorf(`%w; an entry must be an absolute path, "default" for the paths of the shipped image, or "*" for an image that covers every command`, err)
		}
	}
	return nil
}

func validateEntry(entry string) error {
	switch {
	case entry == Default, entry == Everything:
		return nil
	case !strings.HasPrefix(entry, "/"):
		return fmt.Errorf("invalid entry %.80q", entry)
	}
	if err := validatePath(entry); err != nil {
		return fmt.Errorf("invalid entry %.80q: %w", entry, err)
	}
	return nil
}

// IsZero reports whether nothing is declared about the image.
func (c Coverage) IsZero() bool { return c.set == nil }

// Equal reports whether both have the same entries in the same order.
func (c Coverage) Equal(other Coverage) bool {
	if c.set == nil || other.set == nil {
		return c.set == other.set
	}
	return slices.Equal(c.set.entries, other.set.entries)
}

// Entries returns the entries as written, or Default if there are none.
func (c Coverage) Entries() []string {
	if c.set == nil {
		return []string{Default}
	}
	return slices.Clone(c.set.entries)
}

// String returns the entries as written, separated by commas.
func (c Coverage) String() string { return strings.Join(c.Entries(), ",") }

// has reports whether the image has the program at the path, which must be clean.
func (c Coverage) has(name string) bool {
	if c.set == nil {
		return isDefault(name)
	}
	_, found := c.set.paths[name]
	return found || c.set.defaults && isDefault(name)
}

func isDefault(name string) bool {
	_, found := slices.BinarySearch(defaultPaths, name)
	return found
}
