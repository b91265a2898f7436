// SPDX-License-Identifier: Apache-2.0

package safetext

import (
	"fmt"
	"strings"
)

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
