// SPDX-License-Identifier: Apache-2.0

// Command docs prints the project's parsed documents as JSON for e2e/docs. Its tests check the rules of CONTRIBUTING.md.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/sidecar-termination/operator/e2e/docs"
)

// root is the root of the repository.
const root = "../.."

func main() {
	documents, err := readAll(root)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(documents)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// readAll returns the documents in the root of the repository and below docs.
func readAll(root string) ([]docs.Document, error) {
	var documents []docs.Document
	repository := os.DirFS(root)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		// The patterns are valid.
		paths, _ := fs.Glob(repository, pattern)
		for _, path := range paths {
			source, err := fs.ReadFile(repository, path)
			if err != nil {
				return nil, fmt.Errorf("read a document: %w", err)
			}
			documents = append(documents, parse(path, source))
		}
	}
	return documents, nil
}

// parse parses a Markdown source.
func parse(path string, source []byte) docs.Document {
	document := docs.Document{Path: path}
	tree := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	// The walk function returns no error.
	_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			title := plainText(n, source)
			document.Headings = append(document.Headings, docs.Heading{Text: title, Anchor: anchor(title)})
		case *ast.FencedCodeBlock:
			document.Blocks = append(document.Blocks, parseBlock(n, string(n.Language(source)), source))
		case *ast.CodeBlock:
			document.Blocks = append(document.Blocks, parseBlock(n, "", source))
		case *ast.Link:
			document.Links = append(document.Links, string(n.Destination))
		case *ast.Image:
			document.Links = append(document.Links, string(n.Destination))
		}
		return ast.WalkContinue, nil
	})
	return document
}

var comment = regexp.MustCompile(`(?s)<!--\s*(not run|given):\s*(.*?)\s*-->`)

func parseBlock(node ast.Node, language string, source []byte) docs.Block {
	block := docs.Block{Language: language, Text: string(node.Lines().Value(source))}
	if node.Lines().Len() > 0 {
		block.Line = 1 + bytes.Count(source[:node.Lines().At(0).Start], []byte("\n"))
	}
	if before, ok := node.PreviousSibling().(*ast.HTMLBlock); ok {
		content := string(before.Lines().Value(source))
		if before.HasClosure() {
			content += string(before.ClosureLine.Value(source))
		}
		for _, match := range comment.FindAllStringSubmatch(content, -1) {
			if match[1] == "given" {
				block.Given = match[2]
			} else {
				block.NotRun = match[2]
			}
		}
	}
	classify(&block)
	return block
}

func plainText(node ast.Node, source []byte) string {
	var written strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if leaf, ok := child.(*ast.Text); ok {
			written.Write(leaf.Value(source))
		} else {
			written.WriteString(plainText(child, source))
		}
	}
	return written.String()
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)

// anchor returns GitHub's anchor of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}
