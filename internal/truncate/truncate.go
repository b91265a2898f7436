// SPDX-License-Identifier: Apache-2.0

// Package truncate shortens texts that users control, for messages with a bounded length.
package truncate

import "strings"

const ellipsis = "..."

// String returns the text, or its beginning and an ellipsis if it is longer than limit bytes. A shortened text is valid
// UTF-8. The limit must be at least the length of the ellipsis.
func String(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
