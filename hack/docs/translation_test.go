// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-termination/operator/e2e/docs"
)

// The Chinese README has the same headings, code and links as the English one.
func TestTranslationMatchesOriginal(t *testing.T) {
	original, translation := document(t, "README.md"), document(t, "README.zh-CN.md")
	levels := func(document docs.Document) []int {
		var all []int
		for _, heading := range document.Headings {
			all = append(all, heading.Level)
		}
		return all
	}
	if difference := cmp.Diff(levels(original), levels(translation)); difference != "" {
		t.Errorf("the levels of the headings differ:\n%s", difference)
	}
	if difference := cmp.Diff(original.Blocks, translation.Blocks, cmpopts.IgnoreFields(docs.Block{}, "Line")); difference != "" {
		t.Errorf("the blocks of code differ:\n%s", difference)
	}
	// The order of links may differ between languages.
	targets := func(document docs.Document, other string) []string {
		links := slices.DeleteFunc(slices.Clone(document.Links), func(link string) bool { return link == other })
		if len(links) != len(document.Links)-1 {
			t.Errorf("%s must link to %s once, at its top", document.Path, other)
		}
		slices.Sort(links)
		return links
	}
	if difference := cmp.Diff(targets(original, translation.Path), targets(translation, original.Path)); difference != "" {
		t.Errorf("the links differ:\n%s", difference)
	}
}
