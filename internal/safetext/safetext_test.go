// SPDX-License-Identifier: Apache-2.0

package safetext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/safetext"
)

func TestEscape(t *testing.T) {
	for name, tc := range map[string]struct{ text, want, lines string }{
		"plain":            {"main exited with 1", "main exited with 1", "main exited with 1"},
		"visible Unicode":  {`日本語 é 🚀 \ "x"`, `日本語 é 🚀 \ "x"`, `日本語 é 🚀 \ "x"`},
		"OSC title":        {"a\x1b]0;owned\x07b", `a\u001b]0;owned\u0007b`, `a\u001b]0;owned\u0007b`},
		"newline and tab":  {"a\n\tb", `a\n\tb`, "a\n\tb"},
		"carriage return":  {"bad\rgood", `bad\rgood`, `bad\rgood`},
		"backspace, DEL":   {"a\b\x7f", `a\u0008\u007f`, `a\u0008\u007f`},
		"C1 control":       {"\u009b2J", `\u009b2J`, `\u009b2J`},
		"C1 as one byte":   {"\x9b2J", `\x9b2J`, `\x9b2J`},
		"right-to-left":    {"a\u202eb\u2066c", `a\u202eb\u2066c`, `a\u202eb\u2066c`},
		"line separator":   {"a\u2028b", `a\u2028b`, `a\u2028b`},
		"invisible":        {"a\u200bb\ufeff", `a\u200bb\ufeff`, `a\u200bb\ufeff`},
		"tag, two escapes": {"a\U000e0041", `a\udb40\udc41`, `a\udb40\udc41`},
		"U+FFFD stays":     {"a\ufffd\x1b", "a\ufffd" + `\u001b`, "a\ufffd" + `\u001b`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := safetext.Escape(tc.text); got != tc.want {
				t.Errorf("Escape: got %q, want %q", got, tc.want)
			}
			if got := safetext.EscapeLines(tc.text); got != tc.lines {
				t.Errorf("EscapeLines: got %q, want %q", got, tc.lines)
			}
			var written strings.Builder
			if n, err := (safetext.Writer{W: &written}).Write([]byte(tc.text)); n != len(tc.text) || err != nil || written.String() != tc.lines {
				t.Errorf("Write: got %d, %v, %q, want %q", n, err, written.String(), tc.lines)
			}
		})
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b]0;owned\x07\u202e\x9b\U000e0041\n")
	f.Fuzz(func(t *testing.T, text string) {
		escaped := safetext.Escape(text)
		for _, r := range escaped {
			if !unicode.IsGraphic(r) {
				t.Errorf("%q has %U", escaped, r)
			}
		}
		if !utf8.ValidString(text) {
			return
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(safetext.EscapeYAML(string(encoded))), new(string)); err != nil {
			t.Errorf("YAML of %q: %v", text, err)
		}
		var decoded string
		if err := json.Unmarshal([]byte(safetext.EscapeLines(string(encoded))), &decoded); err != nil || decoded != text {
			t.Errorf("JSON of %q reads as %q, %v", text, decoded, err)
		}
	})
}

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
