// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
	if err := e.unknown["PATH"]; err != nil {
		return "", err
	}
	if value, ok := e.values["PATH"]; ok {
		return value, nil
	}
	return SearchPath, nil
}

// expand replaces $(NAME) by the variable's value and $$ by $, as the kubelet does. A
// variable whose value is not known is an error.
func (e *environment) expand(text string) (string, error) {
	expanded := &strings.Builder{}
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		expanded.WriteString(before)
		if !found {
			break
		}
		text = after
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			expanded.WriteString("$")
			text = after[1:]
		case strings.HasPrefix(after, "(") && closed:
			value, err := e.value(name)
			if err != nil {
				return "", err
			}
			expanded.WriteString(value)
			text = rest
		default:
			expanded.WriteString("$")
		}
	}
	return expanded.String(), nil
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
