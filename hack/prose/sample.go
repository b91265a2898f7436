// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sampleSize is how many comments, and how many sentences for users, a sample has.
const sampleSize = 60

// excerpt is a comment or a sentence with its place.
type excerpt struct{ place, text string }

// sample prints comments and sentences for users, chosen at random. The same seed and files give the same sample.
func sample(files []string, seed uint64, output io.Writer) error {
	var internal, public []excerpt
	for _, file := range files {
		found, err := excerpts(file)
		if err != nil {
			return err
		}
		internal, public = append(internal, found.internal...), append(public, found.public...)
	}
	random := rand.New(rand.NewPCG(seed, seed))
	_, err := fmt.Fprintf(output, "# Sample of comments and sentences\n\nWritten by `make prose-sample SEED=%d`. Do not edit.\n\n"+
		"## Comments\n\n%s\n## Sentences for users\n\n%s", seed, choose(random, internal), choose(random, public))
	return err
}

func choose(random *rand.Rand, all []excerpt) string {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	chosen := all[:min(sampleSize, len(all))]
	slices.SortFunc(chosen, func(a, b excerpt) int {
		return cmp.Or(strings.Compare(a.place, b.place), strings.Compare(a.text, b.text))
	})
	var list strings.Builder
	for i, one := range chosen {
		fmt.Fprintf(&list, "%d. `%s`: %s\n", i+1, one.place, one.text)
	}
	return list.String()
}

type audience struct{ internal, public []excerpt }

// excerpts returns the comments and the sentences of a file. Comments of the API become descriptions of the CRDs, so they
// are for users.
func excerpts(file string) (audience, error) {
	if filepath.Ext(file) != ".go" {
		content, err := os.ReadFile(file)
		if err != nil {
			return audience{}, fmt.Errorf("read a file: %w", err)
		}
		return audience{public: sentences(file, string(content))}, nil
	}
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return audience{}, fmt.Errorf("parse a Go file: %w", err)
	}
	var found audience
	at := func(pos token.Pos) string { return fmt.Sprintf("%s:%d", file, positions.Position(pos).Line) }
	for _, group := range tree.Comments {
		if excerpt := (excerpt{at(group.Pos()), oneLine(marker.ReplaceAllString(group.Text(), ""))}); isSentence(excerpt.text) {
			found.internal = append(found.internal, excerpt)
		}
	}
	if strings.HasPrefix(file, "api/") {
		found = audience{public: found.internal}
	}
	if !strings.HasSuffix(file, "_test.go") {
		for _, text := range literals(positions, tree) {
			if excerpt := (excerpt{fmt.Sprintf("%s:%d", file, text.number), oneLine(text.text)}); isSentence(excerpt.text) {
				found.public = append(found.public, excerpt)
			}
		}
	}
	return found, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// isSentence leaves out licences, directives, figures and words that stand alone.
func isSentence(text string) bool {
	return len(word.FindAllString(text, 5)) > 4 && !strings.HasPrefix(text, "SPDX-")
}

var (
	// marker is a line of a comment that tools read.
	marker = regexp.MustCompile(`(?m)^\+.*$`)
	code   = regexp.MustCompile("(?ms)^```.*?^```$|^#+ .*?$|<!--.*?-->")
	word   = regexp.MustCompile(`[A-Za-z]{2,}`)
	split  = regexp.MustCompile(`([.!?])\s+|\s*\|\s*|\n\s*(?:- |\d+\. )|\n\n`)
)

// sentences returns the sentences of a document, those of its tables included, or of what a command prints.
func sentences(file, content string) []excerpt {
	if filepath.Ext(file) == ".md" {
		content = code.ReplaceAllStringFunc(content, func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) })
	}
	var found []excerpt
	start := 0
	for _, end := range append(split.FindAllStringSubmatchIndex(content, -1), []int{len(content), len(content), -1, -1}) {
		text := content[start:max(end[0], end[3])]
		number := 1 + strings.Count(content[:start], "\n") + len(text) - len(strings.TrimLeft(text, "\n"))
		if text = oneLine(text); isSentence(text) {
			found = append(found, excerpt{fmt.Sprintf("%s:%d", file, number), text})
		}
		start = end[1]
	}
	return found
}
