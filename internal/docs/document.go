// SPDX-License-Identifier: Apache-2.0

// Package docs reads the project's documents, so that tests can run every command in them, apply every manifest
// and follow every link.
package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// Document is what tests need of one Markdown file.
type Document struct {
	// Path is relative to the root of the repository.
	Path     string
	Headings []Heading
	Blocks   []Block
	// Links are the destinations of links and images.
	Links []string
}

// Heading is a heading with the anchor by which GitHub links to it.
type Heading struct {
	Level        int
	Text, Anchor string
}

// Block is a block of code.
type Block struct {
	// Line is where the code begins.
	Line int
	// Language is the word after the fence; an indented block has none.
	Language string
	Text     string
	// NotRun is the reason in a comment <!-- not run: REASON --> directly before the block.
	NotRun string
	// Given are the commands in a comment <!-- given: COMMANDS --> directly before the block. They make what the block
	// takes for granted.
	Given string
}

// translations have the commands of the document that they translate; a test compares the two.
var translations = []string{"README.zh-CN.md"}

// Read returns the documents of the repository: those at its root and everything below docs. Translations are left out.
func Read(root string) ([]Document, error) {
	paths, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list documents: %w", err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list documents: %w", err)
	}
	var documents []Document
	for _, path := range paths {
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return nil, fmt.Errorf("find the way to %s: %w", path, err)
		}
		if slices.Contains(translations, relative) {
			continue
		}
		document, err := ReadFile(root, filepath.ToSlash(relative))
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	return documents, nil
}

// ReadFile returns one document. The path is relative to the root.
func ReadFile(root, path string) (Document, error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return Document{}, fmt.Errorf("read a document: %w", err)
	}
	return Parse(path, source), nil
}

// Parse returns the document that a Markdown source makes.
func Parse(path string, source []byte) Document {
	document := Document{Path: path}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table))
	tree := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext()))
	// The walker has no error of its own.
	_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			document.add(node, source)
		}
		return ast.WalkContinue, nil
	})
	return document
}

func (d *Document) add(node ast.Node, source []byte) {
	switch n := node.(type) {
	case *ast.Heading:
		title := plainText(n, source)
		d.Headings = append(d.Headings, Heading{Level: n.Level, Text: title, Anchor: anchor(title)})
	case *ast.FencedCodeBlock:
		d.addBlock(n, string(n.Language(source)), source)
	case *ast.CodeBlock:
		d.addBlock(n, "", source)
	case *ast.Link:
		d.Links = append(d.Links, string(n.Destination))
	case *ast.Image:
		d.Links = append(d.Links, string(n.Destination))
	}
}

var comment = regexp.MustCompile(`(?s)<!--\s*(not run|given):\s*(.*?)\s*-->`)

func (d *Document) addBlock(node ast.Node, language string, source []byte) {
	block := Block{Language: language, Text: string(node.Lines().Value(source))}
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

// anchor is how GitHub names a heading in links.
func anchor(title string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

var nameOfFile = regexp.MustCompile(`^# (\S+\.ya?ml)\n`)

// File returns the name by which the document's commands know a block of YAML: its first line, as in "# job.yaml".
func (b Block) File() string {
	if match := nameOfFile.FindStringSubmatch(b.Text); match != nil && b.Language == "yaml" {
		return match[1]
	}
	return ""
}
