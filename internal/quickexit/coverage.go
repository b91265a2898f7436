// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"slices"
	"strings"
)

// The entries of a coverage that are not paths.
const (
	// Default stands for DefaultPaths.
	Default = "default"
	// Everything stands for every path: the image runs the program whatever the command is.
	Everything = "*"
)

// MaxEntries is how many entries of a coverage count.
const MaxEntries = 1024

// Coverage says at which paths an image has the program. Every image has the entrypoint.
// The zero value is that of an image nobody has said anything about: it has DefaultPaths.
//
// A coverage is built once and never changes. Copies share what was built, and a lookup
// costs the same whatever the number of entries. Use Equal to compare two of them.
type Coverage struct {
	_   [0]func() // no ==, which would compare pointers
	set *entrySet
}

// entrySet is what the entries come to.
type entrySet struct {
	entries              []string // as written
	paths                map[string]struct{}
	defaults, everything bool
}

// CoverageOf returns the coverage of an image that has the entries and no others. An entry
// is an absolute path, Default or Everything. Entries that ValidateEntries names match no
// command, nor do those after the first MaxEntries. No entries give the zero value.
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

// ValidateEntries fails if entries do not count. The error names the first one and says
// what an entry must be.
func ValidateEntries(entries []string) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("there are %d entries, and at most %d count; list fewer, or build an image for those that are needed", len(entries), MaxEntries)
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

// IsZero reports whether nothing was said about the image.
func (c Coverage) IsZero() bool { return c.set == nil }

// Equal reports whether both were built from the same entries.
func (c Coverage) Equal(other Coverage) bool {
	if c.set == nil || other.set == nil {
		return c.set == other.set
	}
	return slices.Equal(c.set.entries, other.set.entries)
}

// String returns the entries as written, separated by commas.
func (c Coverage) String() string {
	if c.set == nil {
		return Default
	}
	return strings.Join(c.set.entries, ",")
}

// has reports whether one of the entries stands for the path, which is clean.
func (c Coverage) has(name string) bool {
	if c.set == nil {
		return isDefault(name)
	}
	_, found := c.set.paths[name]
	return found || c.set.defaults && isDefault(name)
}

// isEverything reports whether the image covers every command.
func (c Coverage) isEverything() bool {
	return c.set != nil && c.set.everything
}

func isDefault(name string) bool {
	_, found := slices.BinarySearch(defaultPaths, name)
	return found
}
