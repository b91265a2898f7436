// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// reasons returns the value of every constant of type Reason.
func reasons(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), root+"/api/v1alpha1/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values[text] = true
		}
		return true
	})
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
