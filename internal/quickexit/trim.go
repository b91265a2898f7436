// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Trim returns a container with what CoversContainer reads of the given one and nothing
// else, so that both have the same answer with every coverage, word for word: the first
// word of the command, and of working directory, variables and mount paths those that
// bear on it. Variables that keep has a use for are kept as well, in their order. The
// result shares no slice with the container.
func Trim(container *corev1.Container, keep func(variable string) bool) corev1.Container {
	trimmed := corev1.Container{Command: firstWord(container.Command)}
	if dependsOnWorkingDir(container.Command) {
		trimmed.WorkingDir = container.WorkingDir
	}
	trimmed.Env = neededVariables(container, keep)
	trimmed.VolumeMounts = neededMounts(container)
	return trimmed
}

func firstWord(command []string) []string {
	if len(command) == 0 {
		return nil
	}
	// A part of the old slice would keep the other words in memory.
	return []string{command[0]}
}

// dependsOnWorkingDir and dependsOnPath err on the side of yes where the word refers to variables.
func dependsOnWorkingDir(command []string) bool {
	return len(command) > 0 && !strings.HasPrefix(command[0], "/") && strings.ContainsAny(command[0], "/$")
}

func dependsOnPath(command []string) bool {
	return len(command) > 0 && (!strings.Contains(command[0], "/") || strings.Contains(command[0], "$") && command[0][0] != '/')
}

// elsewhere stands for every source of a value, for none can be read.
var elsewhere = &corev1.EnvVarSource{}

// neededVariables returns those that the command refers to, and those that these refer to
// in turn, and PATH where it counts. A value refers only to variables before it.
func neededVariables(container *corev1.Container, keep func(variable string) bool) []corev1.EnvVar {
	var needed []string
	needReferences := func(text string) {
		for piece, isName := range pieces(text) {
			if isName {
				needed = append(needed, piece)
			}
		}
	}
	if dependsOnPath(container.Command) {
		needed = append(needed, searchPathVariable)
	}
	if len(container.Command) > 0 {
		needReferences(container.Command[0])
	}
	var kept []corev1.EnvVar
	for _, variable := range slices.Backward(container.Env) {
		if slices.Contains(needed, variable.Name) {
			needReferences(variable.Value)
		} else if !keep(variable.Name) {
			continue
		}
		if variable.ValueFrom != nil {
			variable.ValueFrom = elsewhere
		}
		kept = append(kept, variable)
	}
	slices.Reverse(kept)
	return slices.Clip(kept)
}

// neededMounts returns those that hide one of the places where the command is looked for.
func neededMounts(container *corev1.Container) []corev1.VolumeMount {
	candidates := []string{Entrypoint}
	if len(container.Command) > 0 {
		var err error
		if candidates, err = Candidates(container, container.Command); err != nil {
			return nil // whatever is mounted, it is not known what would run
		}
	}
	var kept []corev1.VolumeMount
	for _, mount := range container.VolumeMounts {
		if slices.ContainsFunc(candidates, func(name string) bool { return hides(mount, name) }) {
			kept = append(kept, corev1.VolumeMount{MountPath: mount.MountPath})
		}
	}
	return kept
}
