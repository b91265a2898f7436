// SPDX-License-Identifier: Apache-2.0

package explain

import "strings"

const (
	// maxEdits is the number of edits from which on two names are different on purpose.
	maxEdits = 2
	// lettersPerEdit allows one edit for every three letters, so that short names are not similar to everything.
	lettersPerEdit = 3
	// maxNameLength and maxCandidates bound the time of a search. Names of containers and values of labels have at most 63 bytes.
	maxNameLength = 64
	maxCandidates = 256
)

// Similar returns the candidate that the name is a likely misspelling of, or nothing. Names that differ only in their digits, such as
// app-1 and app-2, are different on purpose.
func Similar(name string, candidates []string) string {
	closest, least := "", maxEdits+1
	for _, candidate := range candidates[:min(len(candidates), maxCandidates)] {
		allowed := max(len(name), len(candidate)) / lettersPerEdit
		if count := edits(name, candidate); count > 0 && count <= allowed && count < least && withoutDigits(name) != withoutDigits(candidate) {
			closest, least = candidate, count
		}
	}
	return closest
}

// edits counts the insertions, deletions, replacements and swaps of neighboring bytes that turn one text into the other (optimal
// string alignment). It returns more than maxEdits for texts that are too long or too different in length.
func edits(a, b string) int {
	if max(len(a), len(b)) > maxNameLength || max(len(a)-len(b), len(b)-len(a)) > maxEdits {
		return maxEdits + 1
	}
	// A row has the counts for a prefix of a and every prefix of b. A swap refers to the row before the previous one.
	var rows [3][maxNameLength + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, previous, earlier := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := previous[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(previous[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], earlier[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}
