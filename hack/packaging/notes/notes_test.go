// SPDX-License-Identifier: Apache-2.0

package notes_test

import (
	"testing"

	"github.com/sidecar-termination/operator/hack/packaging/notes"
)

const changelog = `# Changelog

## [Unreleased]

## [0.2.0] - 2026-03-01

### Added

A paragraph
of two lines.

- Described in [the guide](docs/guide.md#a), [above](#changelog) and
  [elsewhere](https://example.test/x).
- Another.

## [0.1.0] - 2026-02-01

- First.

[Unreleased]: https://example.test/compare
[0.1.0]: https://example.test/0.1.0
`

func TestNotesOfTag(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.2.0": "### Added\n\nA paragraph of two lines.\n\n- Described in [the guide](https://github.com/sidecar-termination/operator/blob/v0.2.0/docs/guide.md#a), " +
			"[above](#changelog) and [elsewhere](https://example.test/x).\n- Another.\n",
		"v0.1.0": "- First.\n",
	} {
		if got, err := notes.Of(changelog, tag); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", tag, got, err, want)
		}
	}
}

func TestMissingOrEmptyNotes(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.3.0":      "CHANGELOG.md has no section [0.3.0]",
		"v0.1":        "CHANGELOG.md has no section [0.1]",
		"vUnreleased": "the section [Unreleased] of CHANGELOG.md is empty",
	} {
		if got, err := notes.Of(changelog, tag); got != "" || err == nil || err.Error() != want {
			t.Errorf("%s: got %q, %v; want the error %q", tag, got, err, want)
		}
	}
}
