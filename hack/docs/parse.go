// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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

// readAll returns the documents in the root of the repository and below docs.
func readAll(root string) ([]docs.Document, error) {
	var documents []docs.Document
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		// The patterns are valid.
		paths, _ := fs.Glob(os.DirFS(root), pattern)
		for _, path := range paths {
			document, err := readFile(root, path)
			if err != nil {
				return nil, err
			}
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// readFile returns one document. The path is relative to the root.
func readFile(root, path string) (docs.Document, error) {
	source, err := fs.ReadFile(os.DirFS(root), path)
	if err != nil {
		return docs.Document{}, fmt.Errorf("read a document: %w", err)
	}
	return parse(path, source), nil
}

// parse parses a Markdown source.
func parse(path string, source []byte) docs.Document {
	document := docs.Document{Path: path}
	tree := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	// The walk function returns no error.
	_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			add(&document, node, source)
		}
		return ast.WalkContinue, nil
	})
	return document
}

func add(d *docs.Document, node ast.Node, source []byte) {
	switch n := node.(type) {
	case *ast.Heading:
		title := plainText(n, source)
		d.Headings = append(d.Headings, docs.Heading{Text: title, Anchor: anchor(title)})
	case *ast.FencedCodeBlock:
		addBlock(d, n, string(n.Language(source)), source)
	case *ast.CodeBlock:
		addBlock(d, n, "", source)
	case *ast.Link:
		d.Links = append(d.Links, string(n.Destination))
	case *ast.Image:
		d.Links = append(d.Links, string(n.Destination))
	}
}

var comment = regexp.MustCompile(`(?s)<!--\s*(not run|given):\s*(.*?)\s*-->`)

func addBlock(d *docs.Document, node ast.Node, language string, source []byte) {
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
			switch match[1] {
			case "not run":
				block.NotRun = match[2]
			case "given":
				block.Given = match[2]
			}
		}
	}
	classify(&block)
	d.Blocks = append(d.Blocks, block)
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
