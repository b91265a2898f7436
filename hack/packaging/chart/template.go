// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// template turns an object with marks in it into a Helm template. A mark is a text that
// stands for a piece of template, since an object cannot hold one.
type template struct {
	marks []mark
}

// mark is what becomes of the line that has it. The line is that of a field or of an item
// of a list, without its indentation.
type mark func(line, name string) string

// value marks a place for the value of an expression.
func (t *template) value(expression string) string {
	return t.add(func(line, name string) string {
		return strings.Replace(line, name, "{{ "+expression+" }}", 1)
	})
}

// block marks the value of a field that is there only if an expression has one, which
// then is written as YAML.
func (t *template) block(expression string) string {
	return t.add(func(line, name string) string {
		field := strings.TrimSuffix(line, " "+name)
		return "{{- with " + expression + " }}\n" + field + "\n  {{- toYaml . | nindent INDENT+2 }}\n{{- end }}"
	})
}

// lines marks a place for a piece of template of its own.
func (t *template) lines(text string) string {
	return t.add(func(string, string) string { return text })
}

func (t *template) add(replacement mark) string {
	t.marks = append(t.marks, replacement)
	return fmt.Sprintf("MARK%dEND", len(t.marks)-1)
}

var (
	markName    = regexp.MustCompile(`MARK(\d+)END`)
	indentation = regexp.MustCompile(`INDENT(\+2)?`)
	namespaces  = regexp.MustCompile(`\b` + namespace + `\b`)
)

// escape keeps Helm from reading braces that are not its own.
var escape = strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`)

// text returns the template of an object under conditions that must all hold.
func (t *template) text(object map[string]any, conditions []string) ([]byte, error) {
	content, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	result := &strings.Builder{}
	result.WriteString(generated)
	switch len(conditions) {
	case 0:
	case 1:
		result.WriteString("{{- if " + conditions[0] + " }}\n")
	default:
		result.WriteString("{{- if and (" + strings.Join(conditions, ") (") + ") }}\n")
	}
	for line := range strings.Lines(string(content)) {
		line = namespaces.ReplaceAllString(escape.Replace(line), "{{ .Release.Namespace }}")
		result.WriteString(t.expand(line))
	}
	if len(conditions) > 0 {
		result.WriteString("{{- end }}\n")
	}
	return []byte(result.String()), nil
}

func (t *template) expand(line string) string {
	found := markName.FindStringSubmatch(line)
	if found == nil {
		return line
	}
	var number int
	if _, err := fmt.Sscan(found[1], &number); err != nil || number >= len(t.marks) {
		return line
	}
	bare := strings.TrimLeft(strings.TrimSuffix(line, "\n"), " ")
	indent := strings.Repeat(" ", len(strings.TrimSuffix(line, "\n"))-len(bare))
	replaced := t.marks[number](bare, found[0])
	replaced = indentation.ReplaceAllStringFunc(replaced, func(match string) string {
		if match == "INDENT" {
			return fmt.Sprint(len(indent))
		}
		return fmt.Sprint(len(indent) + 2)
	})
	return indent + strings.ReplaceAll(replaced, "\n", "\n"+indent) + "\n"
}
