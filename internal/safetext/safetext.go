// SPDX-License-Identifier: Apache-2.0

// Package safetext makes texts safe to show: names, reasons and messages come from anyone who can write a pod or a manifest.
// Control characters can change what a terminal shows or does, format characters can reorder text, and any length is possible.
package safetext

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape replaces every invisible character with an escape sequence such as \n or \u001b: C0 and C1 controls, DEL, and Unicode
// format characters. Bytes that are not UTF-8 become \xNN. Visible characters, including backslashes, stay. Inside a JSON
// string the result has the same meaning as the text, if the text is UTF-8.
func Escape(text string) string { return escape(text, "", surrogates) }

// EscapeLines is Escape for multi-line text: newlines and tabs stay.
func EscapeLines(text string) string { return escape(text, "\n\t", surrogates) }

// EscapeYAML is EscapeLines for JSON that is parsed as YAML, which escapes characters above U+FFFF differently.
func EscapeYAML(text string) string {
	return escape(text, "\n\t", func(r rune) string { return fmt.Sprintf(`\U%08x`, r) })
}

// Writer escapes each write with EscapeLines. A character must not be split over two writes.
type Writer struct{ W io.Writer }

// Write implements io.Writer.
func (w Writer) Write(data []byte) (int, error) {
	if _, err := io.WriteString(w.W, EscapeLines(string(data))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// surrogates is the JSON escape of a character above U+FFFF.
func surrogates(r rune) string {
	first, second := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, first, second)
}

func escape(text, kept string, above func(rune) string) string {
	visible := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsGraphic(r) || strings.ContainsRune(kept, r))
	}
	if strings.IndexFunc(text, func(r rune) bool { return !visible(r) }) < 0 {
		return text
	}
	var escaped strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&escaped, `\x%02x`, text[i])
		case r == utf8.RuneError, visible(r):
			escaped.WriteRune(r)
		case r == '\n':
			escaped.WriteString(`\n`)
		case r == '\r':
			escaped.WriteString(`\r`)
		case r == '\t':
			escaped.WriteString(`\t`)
		case r > 0xffff:
			escaped.WriteString(above(r))
		default:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.String()
}

const ellipsis = "..."

// MaxEventNote is the maximum length of a note in events.k8s.io.
const MaxEventNote = 1024

// Truncate returns the text, or its beginning and an ellipsis if it is longer than limit bytes. A shortened text is valid
// UTF-8. The limit must be at least the length of the ellipsis.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}

// List joins the first texts with the separator, and counts those beyond the limit.
func List(texts []string, limit int, separator string) string {
	joined := strings.Join(texts[:min(len(texts), limit)], separator)
	if more := len(texts) - limit; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}
