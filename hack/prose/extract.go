// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
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
// the line that it has in its file, so that findings point there. Vale itself reads the comments of Go files, so those in
// DIRECTORY/FILE.comments are only for make prose-sample.
func extract(files []string, directory string) error {
	for _, file := range files {
		texts, err := textsOf(file)
		if err != nil {
			return err
		}
		for suffix, lines := range texts {
			if err := write(filepath.Join(directory, file+suffix), lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// textsOf returns the texts of a file by the suffix of the file to write them to.
func textsOf(file string) (map[string][]line, error) {
	if filepath.Ext(file) != ".go" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a file: %w", err)
		}
		return map[string][]line{".strings.txt": plain(file, string(content))}, nil
	}
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse a Go file: %w", err)
	}
	return map[string][]line{
		".strings.txt": literals(positions, tree), ".names.txt": declared(positions, tree), ".comments": comments(positions, tree),
	}, nil
}

// comments returns each group of comments as one line.
func comments(positions *token.FileSet, tree *ast.File) []line {
	var found []line
	for _, group := range tree.Comments {
		found = append(found, line{positions.Position(group.Pos()).Line, strings.Join(strings.Fields(group.Text()), " ")})
	}
	return found
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
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	// The file is checked without its package and imports: what they declare is missing, which changes nothing.
	config := types.Config{Error: func(error) {}}
	_, _ = config.Check(tree.Name.Name, positions, []*ast.File{tree}, &info)
	// Other packages chose the names that imports have.
	maps.DeleteFunc(info.Defs, func(_ *ast.Ident, object types.Object) bool { _, isImport := object.(*types.PkgName); return isImport })
	var found []line
	for _, name := range slices.SortedFunc(maps.Keys(info.Defs), func(a, b *ast.Ident) int { return cmp.Compare(a.Pos(), b.Pos()) }) {
		split := strings.ToLower(strings.Join(words.FindAllString(name.Name, -1), " "))
		found = append(found, line{positions.Position(name.Pos()).Line, split + "."})
	}
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
