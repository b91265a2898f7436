// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// line is one text with the line of its file.
type line struct {
	number int
	text   string
}

// extract writes the texts of each file to DIRECTORY/FILE.strings.txt and DIRECTORY/FILE.names.txt. Every text stands on
// the line that it has in its file, so that findings point there. Vale itself reads the comments of Go files.
func extract(files []string, directory string) error {
	for _, file := range files {
		texts, names, err := textsOf(file)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(directory, file+".strings.txt"), texts); err != nil {
			return err
		}
		if err := write(filepath.Join(directory, file+".names.txt"), names); err != nil {
			return err
		}
	}
	return nil
}

func textsOf(file string) (texts, names []line, err error) {
	if filepath.Ext(file) != ".go" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("read a file: %w", err)
		}
		return plain(file, string(content)), nil, nil
	}
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, fmt.Errorf("parse a Go file: %w", err)
	}
	return literals(positions, tree), declared(positions, tree), nil
}

var comment = regexp.MustCompile(`(?:^|\s)#+ (.*)`)

// plain returns the comments of a Makefile or a shell script, and all of a manifest: its messages and descriptions count, too.
func plain(file, content string) []line {
	isManifest := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))
	var found []line
	for number, text := range strings.Split(content, "\n") {
		if match := comment.FindStringSubmatch(text); match != nil {
			found = append(found, line{number + 1, match[1]})
		} else if isManifest {
			found = append(found, line{number + 1, text})
		}
	}
	return found
}

// literals returns the strings that may be sentences: those of three words and more. Concatenated strings are one.
func literals(positions *token.FileSet, tree *ast.File) []line {
	var found []line
	ast.Inspect(tree, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			node.Tag = nil
		case ast.Expr:
			text, ok := constant(node)
			if ok && len(strings.Fields(text)) > 2 {
				found = append(found, line{positions.Position(node.Pos()).Line, text})
			}
			return !ok
		}
		return true
	})
	return found
}

// constant returns the value of a string, or of strings that are added up.
func constant(expression ast.Expr) (string, bool) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expression.Value)
		return text, err == nil && expression.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := constant(expression.X)
		right, isRight := constant(expression.Y)
		return left + right, expression.Op == token.ADD && isLeft && isRight
	}
	return "", false
}

var words = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

// declared returns the words of every name that the file declares: "podPlan" becomes "pod plan".
func declared(positions *token.FileSet, tree *ast.File) []line {
	var found []line
	add := func(names ...*ast.Ident) {
		for _, name := range names {
			split := strings.ToLower(strings.Join(words.FindAllString(name.Name, -1), " "))
			found = append(found, line{positions.Position(name.Pos()).Line, split + "."})
		}
	}
	add(tree.Name)
	ast.Inspect(tree, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			add(node.Name)
		case *ast.TypeSpec:
			add(node.Name)
		case *ast.ValueSpec:
			add(node.Names...)
		case *ast.Field:
			add(node.Names...)
		case *ast.AssignStmt:
			for _, left := range node.Lhs {
				if name, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
					add(name)
				}
			}
		case *ast.RangeStmt:
			for _, left := range []ast.Expr{node.Key, node.Value} {
				if name, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
					add(name)
				}
			}
		}
		return true
	})
	return found
}

// write writes the texts, each on its line. A text of several lines moves those after it down only if they collide.
func write(path string, texts []line) error {
	if len(texts) == 0 {
		return nil
	}
	var content strings.Builder
	at := 1
	for _, text := range texts {
		for ; at < text.number; at++ {
			content.WriteString("\n")
		}
		trimmed := strings.TrimRight(text.text, "\n")
		content.WriteString(trimmed + " ")
		at += strings.Count(trimmed, "\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if err := os.WriteFile(path, []byte(content.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write texts: %w", err)
	}
	return nil
}
