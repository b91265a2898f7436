// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Coverage says at which paths an image has the program, as users write it: entries
// separated by commas or white space. An entry is an absolute path, "default" for
// DefaultPaths, or "*" for an image that runs the program whatever the command is. Every
// image has the entrypoint. Coverage without an entry, the zero value, is that of the
// shipped image. An entry that is none of these counts for nothing, and so do those after
// the first MaxEntries; Check finds them.
//
// It is no more than the text: it costs nothing to make, to copy and to compare.
type Coverage string

const (
	// Default is the coverage of an image that has DefaultPaths alone.
	Default Coverage = "default"
	// Everything is the coverage of an image that covers every command.
	Everything Coverage = "*"
)

// MaxEntries is how many entries of a coverage are read.
const MaxEntries = 1024

// CoverageOf makes a coverage of the texts, each with any number of entries.
func CoverageOf(texts ...string) Coverage {
	return Coverage(strings.TrimFunc(strings.Join(texts, ","), isSeparator))
}

// Check fails if entries count for nothing. The error names the first one and says what
// an entry must be.
func (c Coverage) Check() error {
	var first error
	count, bad := 0, 0
	for entry := range c.entries() {
		if count++; count > MaxEntries {
			continue
		}
		if err := validateEntry(entry); err != nil {
			if bad++; bad == 1 {
				first = err
			}
		}
	}
	const must = `an entry must be an absolute path, "default" for the paths of the shipped image, or "*" for an image that covers every command`
	switch {
	case bad > 1:
		return fmt.Errorf("%w, and %d more entries do not count either; %s", first, bad-1, must)
	case bad == 1:
		return fmt.Errorf("%w; %s", first, must)
	case count > MaxEntries:
		return fmt.Errorf("only the first %d of %d entries count; list fewer, or build an image for those that are needed", MaxEntries, count)
	}
	return nil
}

func validateEntry(entry string) error {
	switch {
	case Coverage(entry) == Default, Coverage(entry) == Everything:
		return nil
	case !strings.HasPrefix(entry, "/"):
		return fmt.Errorf("entry %.80q does not count", entry)
	}
	if err := validatePath(entry); err != nil {
		return fmt.Errorf("entry %.80q does not count: %w", entry, err)
	}
	return nil
}

// entries are the words of the text.
func (c Coverage) entries() iter.Seq[string] {
	return strings.FieldsFuncSeq(string(c), isSeparator)
}

// has reports whether one of the entries stands for the path, which is clean.
func (c Coverage) has(name string) bool {
	count := 0
	for entry := range c.entries() {
		if count++; count > MaxEntries {
			return false
		}
		if Coverage(entry) == Default && isDefault(name) || entry == name && validatePath(entry) == nil {
			return true
		}
	}
	return count == 0 && isDefault(name)
}

// isEverything reports whether the image covers every command.
func (c Coverage) isEverything() bool {
	if !strings.Contains(string(c), string(Everything)) {
		return false
	}
	count := 0
	for entry := range c.entries() {
		if count++; count > MaxEntries {
			return false
		}
		if Coverage(entry) == Everything {
			return true
		}
	}
	return false
}

func isDefault(name string) bool {
	_, found := slices.BinarySearch(defaultPaths, name)
	return found
}

func isSeparator(r rune) bool {
	return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r'
}
