// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"testing"
)

var constant = regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"$`)

// reasons returns the values of the constants of type Reason.
func reasons(t *testing.T) map[string]bool {
	t.Helper()
	source, err := os.ReadFile(root + "/api/v1alpha1/reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	for _, match := range constant.FindAllStringSubmatch(string(source), -1) {
		values[match[1]] = true
	}
	if len(values) == 0 {
		t.Fatal("no reason was found")
	}
	return values
}

func TestReasonsHaveHeadings(t *testing.T) {
	constants, described := reasons(t), map[string]int{}
	for _, heading := range document(t, "docs/troubleshooting.md").Headings {
		if heading.Level == 3 {
			described[heading.Text]++
		}
	}
	for reason := range constants {
		if described[reason] != 1 {
			t.Errorf("docs/troubleshooting.md has %d headings %q, want one with meaning, place and remedy", described[reason], reason)
		}
	}
	for heading := range described {
		if !constants[heading] {
			t.Errorf("docs/troubleshooting.md has heading %q, but api/v1alpha1/reasons.go has no such reason", heading)
		}
	}
}
