// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const searchPathVariable = "PATH"

// environment are the variables that a command depends on, as far as the container's definition has their values.
type environment struct {
	// values has the last value of each variable, expanded.
	values map[string]string
	// unknown has why the value of a variable cannot be told.
	unknown map[string]error
	// expanded is the length of all expansions so far.
	expanded int
}

// newEnvironment reads the variables in their order, as the kubelet does: a value may refer to the variables before it,
// and a later variable replaces an earlier one.
func newEnvironment(variables []corev1.EnvVar) *environment {
	result := &environment{values: map[string]string{}, unknown: map[string]error{}}
	for i := range variables {
		name := variables[i].Name
		delete(result.values, name)
		delete(result.unknown, name)
		value, err := result.read(&variables[i])
		if err != nil {
			result.unknown[name] = err
			continue
		}
		result.values[name] = value
	}
	return result
}

func (e *environment) read(variable *corev1.EnvVar) (string, error) {
	switch {
	case variable.ValueFrom != nil:
		return "", fmt.Errorf("variable %s has its value from elsewhere (valueFrom)", shown(variable.Name))
	case len(variable.Value) > maxValue:
		return "", fmt.Errorf("variable %s is longer than %d bytes", shown(variable.Name), maxValue)
	}
	value, err := e.expand(variable.Value)
	if err != nil {
		return "", fmt.Errorf("expand variable %s: %w", shown(variable.Name), err)
	}
	return value, nil
}

// searchPath returns the container's PATH, or that of the image.
func (e *environment) searchPath() (string, error) {
	if err := e.unknown[searchPathVariable]; err != nil {
		return "", err
	}
	if value, ok := e.values[searchPathVariable]; ok {
		return value, nil
	}
	return SearchPath, nil
}

// expand replaces $(NAME) by the variable's value and $$ by $, as the kubelet does
// (third_party/forked/golang/expansion). It fails when a variable's value cannot be told, and when all expansions
// together become longer than maxExpanded.
func (e *environment) expand(text string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	expanded := &strings.Builder{}
	for piece, isName := range pieces(text) {
		if isName {
			value, err := e.value(piece)
			if err != nil {
				return "", err
			}
			piece = value
		}
		if e.expanded += len(piece); e.expanded > maxExpanded {
			return "", fmt.Errorf("variables expand to more than %d bytes", maxExpanded)
		}
		expanded.WriteString(piece)
	}
	return expanded.String(), nil
}

func (e *environment) value(name string) (string, error) {
	if err := e.unknown[name]; err != nil {
		return "", err
	}
	value, ok := e.values[name]
	if !ok {
		return "", fmt.Errorf("variable %s is not among the container's env", shown(name))
	}
	return value, nil
}

// pieces cuts a text into what stands for itself and the names of the variables that are referred to, in their order;
// true comes with a name. Its time is linear in the length of the text.
func pieces(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for text != "" {
			before, after, found := strings.Cut(text, "$")
			next, isName := "", false
			switch {
			case !found:
			case strings.HasPrefix(after, "$"):
				next, after = "$", after[1:]
			case !strings.HasPrefix(after, "("):
				next = "$"
			default:
				name, rest, closed := strings.Cut(after[1:], ")")
				if !closed {
					// No later reference is closed either. Looking for its end at each "$(" would take quadratic time.
					yield(before+strings.ReplaceAll("$"+after, "$$", "$"), false)
					return
				}
				next, isName, after = name, true, rest
			}
			if !yield(before, false) || found && !yield(next, isName) {
				return
			}
			text = after
		}
	}
}
