// SPDX-License-Identifier: Apache-2.0

package safetext_test

import (
	"testing"

	"github.com/sidecar-termination/operator/internal/safetext"
)

func TestTruncate(t *testing.T) {
	tests := map[string]struct {
		text, want string
	}{
		"empty":                    {"", ""},
		"as long as the limit":     {"12345678", "12345678"},
		"longer than the limit":    {"123456789", "12345..."},
		"character at the cut":     {"1234é6789", "1234..."},
		"character before the cut": {"123é56789", "123é..."},
		"not UTF-8":                {"123\xff56789", "1235..."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := safetext.Truncate(test.text, 8); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestList(t *testing.T) {
	tests := map[string]struct {
		texts []string
		want  string
	}{
		"empty":                   {nil, ""},
		"as many as the limit":    {[]string{"a", "b"}, "a, b"},
		"one more than the limit": {[]string{"a", "b", "c"}, "a, b and 1 more"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := safetext.List(test.texts, 2, ", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
