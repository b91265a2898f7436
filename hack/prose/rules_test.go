// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// make verify-prose checks that Vale rejects every line of testdata/rejected.*. Here every rule has a line.
func TestEveryRuleHasARejectedLine(t *testing.T) {
	for style, sample := range map[string]string{"Words": "rejected.txt", "Passive": "rejected.txt", "Names": "rejected.names.txt", "Subject": "rejected.names.txt"} {
		t.Run(style, func(t *testing.T) {
			lines := strings.Split(read(t, "testdata", sample), "\n")
			for _, pattern := range patterns(t, style) {
				if !slices.ContainsFunc(lines, regexp.MustCompile("(?i)"+pattern).MatchString) {
					t.Errorf("no line of %s has %s", sample, pattern)
				}
			}
		})
	}
}

// patterns returns the regular expressions of a style.
func patterns(t *testing.T, style string) []string {
	t.Helper()
	var rules struct {
		Swap   map[string]string
		Tokens []string
	}
	if err := yaml.Unmarshal([]byte(read(t, "..", "..", "styles", "Project", style+".yml")), &rules); err != nil {
		t.Fatal(err)
	}
	all := rules.Tokens
	for pattern := range rules.Swap {
		all = append(all, pattern)
	}
	if len(all) == 0 {
		t.Fatalf("style %s has no rules", style)
	}
	return all
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
