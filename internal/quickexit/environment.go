// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/truncate"
)

const searchPathVariable = "PATH"

// environment holds the values of the variables that a command depends on.
type environment struct {
	// values maps each variable to its last value, expanded.
	values map[string]string
	// unknown maps a variable to the reason why its value is unknown.
	unknown map[string]error
	// expanded is the total length of all expansions so far.
	expanded int
}

// newEnvironment expands the variables in order, as the kubelet does: a value may refer to earlier variables, and a later
// variable replaces an earlier one.
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
		return "", fmt.Errorf("variable %s gets its value from another object (valueFrom)", truncate.String(variable.Name, maxShown))
	case len(variable.Value) > maxValue:
		return "", fmt.Errorf("variable %s is longer than %d bytes", truncate.String(variable.Name, maxShown), maxValue)
	}
	value, err := e.expand(variable.Value)
	if err != nil {
		return "", fmt.Errorf("expand variable %s: %w", truncate.String(variable.Name, maxShown), err)
	}
	return value, nil
}

// searchPath returns the container's PATH, or else the image's.
func (e *environment) searchPath() (string, error) {
	if err := e.unknown[searchPathVariable]; err != nil {
		return "", err
	}
	if value, ok := e.values[searchPathVariable]; ok {
		return value, nil
	}
	return SearchPath, nil
}

// expand replaces $(NAME) by the variable's value and $$ by $, as the kubelet does (third_party/forked/golang/expansion).
// It fails when a value is unknown, and when all expansions together are longer than maxExpanded.
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
		return "", fmt.Errorf("variable %s is not in the container's env", truncate.String(name, maxShown))
	}
	return value, nil
}

// pieces splits a text into literals (false) and names of referenced variables (true), in order. Its time is linear in the
// length of the text.
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
