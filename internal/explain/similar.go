// SPDX-License-Identifier: Apache-2.0

package explain

import "regexp"

const (
	// maxEdits is the number of edits from which on two names are different on purpose.
	maxEdits = 2
	// lettersPerEdit allows one edit for every three letters, so that short names are not similar to everything.
	lettersPerEdit = 3
	// maxNameLength and maxCandidates bound the time of a search. Names of containers and values of labels have at most 63 bytes.
	maxNameLength = 64
	maxCandidates = 256
)

var digits = regexp.MustCompile(`[0-9]+`)

// Similar returns the candidate that the name is a likely misspelling of, or nothing. Names that differ only in their digits, such as
// app-1 and app-2, are different on purpose.
func Similar(name string, candidates []string) string {
	closest, least := "", maxEdits+1
	for _, candidate := range candidates[:min(len(candidates), maxCandidates)] {
		length := max(len(name), len(candidate))
		if length > maxNameLength || digits.ReplaceAllString(name, "") == digits.ReplaceAllString(candidate, "") {
			continue
		}
		if count := edits(name, candidate, maxEdits); count <= length/lettersPerEdit && count < least {
			closest, least = candidate, count
		}
	}
	return closest
}

// edits counts the insertions, deletions, replacements and swaps of neighboring bytes that turn one text into the other (optimal
// string alignment), up to the limit. It returns more than the limit for texts that differ more.
func edits(a, b string, limit int) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case limit == 0:
		return 1
	}
	least := min(edits(a[1:], b, limit-1), edits(a, b[1:], limit-1), edits(a[1:], b[1:], limit-1))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, edits(a[2:], b[2:], limit-1))
	}
	return least + 1
}
