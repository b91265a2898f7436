// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// dependencies collects the definitions of variables that a command depends on. The caller passes the container's
// variables from last to first, because a value refers to the last definition before its own.
type dependencies struct {
	// names are referenced variables whose definition has not been passed yet.
	names []string
	// references counts all names so far.
	references int
}

// dependenciesOf returns the direct dependencies of the first word of a command.
func dependenciesOf(word string) *dependencies {
	d := &dependencies{}
	if dependsOnPath(word) {
		d.refer(searchPathVariable)
	}
	d.referTo(word)
	return d
}

// referTo adds the variables that the text refers to.
func (d *dependencies) referTo(text string) {
	if !strings.Contains(text, "$") {
		return
	}
	for piece, isName := range pieces(text) {
		if isName {
			d.refer(piece)
		}
		if d.tooMany() {
			return
		}
	}
}

func (d *dependencies) refer(name string) {
	if slices.Contains(d.names, name) {
		return
	}
	d.names = append(d.names, name)
	d.references++
}

func (d *dependencies) tooMany() bool { return d.references > maxVariables }

// meet reports whether the command depends on the definition, and adds the variables in its value.
func (d *dependencies) meet(variable *corev1.EnvVar) bool {
	i := slices.Index(d.names, variable.Name)
	if i < 0 || d.tooMany() {
		return false
	}
	d.names = slices.Delete(d.names, i, i+1)
	if variable.ValueFrom == nil && len(variable.Value) <= maxValue {
		d.referTo(variable.Value)
	}
	return true
}

// definitions returns the definitions that the first word of a command depends on, in the container's order. It fails
// when there are more than maxVariables.
func definitions(container *corev1.Container, word string) ([]corev1.EnvVar, error) {
	needed := dependenciesOf(word)
	var found []corev1.EnvVar
	for i := len(container.Env) - 1; i >= 0 && len(needed.names) > 0; i-- {
		if needed.meet(&container.Env[i]) {
			found = append(found, container.Env[i])
		}
	}
	if needed.tooMany() {
		return nil, fmt.Errorf("it refers to more than %d variables", maxVariables)
	}
	slices.Reverse(found)
	return found, nil
}

// dependsOnWorkingDir and dependsOnPath return true if in doubt, that is, where the word refers to variables.
func dependsOnWorkingDir(word string) bool {
	return !strings.HasPrefix(word, "/") && strings.ContainsAny(word, "/$")
}

func dependsOnPath(word string) bool {
	return !strings.Contains(word, "/") || strings.Contains(word, "$") && word[0] != '/'
}

// refersToVariables reports whether the program that the word runs depends on the expansion of a variable, given the
// definitions that it depends on.
func refersToVariables(word string, definitions []corev1.EnvVar) bool {
	return strings.Contains(word, "$") || dependsOnPath(word) && slices.ContainsFunc(definitions, func(v corev1.EnvVar) bool {
		return v.Name == searchPathVariable && strings.Contains(v.Value, "$")
	})
}
