// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const searchPathVariable = "PATH"

// environment are a container's variables as far as its definition has their values.
type environment struct {
	// values has the last value of each variable, expanded.
	values map[string]string
	// unknown has why the value of a variable cannot be known.
	unknown map[string]error
}

// newEnvironment reads the variables in their order, as the kubelet does: a value may
// refer to the variables before it, and a later variable replaces an earlier one.
func newEnvironment(container *corev1.Container) *environment {
	result := &environment{values: map[string]string{}, unknown: map[string]error{}}
	for _, variable := range container.Env {
		delete(result.values, variable.Name)
		delete(result.unknown, variable.Name)
		if variable.ValueFrom != nil {
			result.unknown[variable.Name] = fmt.Errorf("variable %s has its value from elsewhere (valueFrom)", variable.Name)
			continue
		}
		value, err := result.expand(variable.Value)
		if err != nil {
			result.unknown[variable.Name] = fmt.Errorf("expand variable %s: %w", variable.Name, err)
			continue
		}
		result.values[variable.Name] = value
	}
	return result
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

// expand replaces $(NAME) by the variable's value and $$ by $, as the kubelet does. A
// variable whose value is not known is an error.
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
		expanded.WriteString(piece)
	}
	return expanded.String(), nil
}

// pieces cuts a text into what stands for itself and the names of the variables that are
// referred to, in their order; true comes with a name.
func pieces(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for text != "" {
			before, after, found := strings.Cut(text, "$")
			name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
			next, isName := "", false
			switch {
			case !found:
			case strings.HasPrefix(after, "$"):
				next, after = "$", after[1:]
			case strings.HasPrefix(after, "(") && closed:
				next, isName, after = name, true, rest
			default:
				next = "$"
			}
			if !yield(before, false) || found && !yield(next, isName) {
				return
			}
			text = after
		}
	}
}

func (e *environment) value(name string) (string, error) {
	if err := e.unknown[name]; err != nil {
		return "", err
	}
	value, ok := e.values[name]
	if !ok {
		return "", fmt.Errorf("variable %s is not among the container's env", name)
	}
	return value, nil
}
