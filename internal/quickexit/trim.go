// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Trim returns a container with what CoversContainer reads of the given one and nothing
// else, so that both have the same answer with every coverage, word for word: the first
// word of the command, and of working directory, variables and mount paths those that
// bear on it. The last definition of each variable that keep has a use for is kept as
// well, in the container's order.
//
// It expands no variable. Its time and the memory that it takes are linear in the size of the container,
// and a text that is longer than its bound is cut behind it. Texts within their bounds are shared with the container, and so is nothing else.
func Trim(container *corev1.Container, keep func(variable string) bool) corev1.Container {
	trimmed := corev1.Container{}
	if len(container.Command) > 0 {
		word := cut(container.Command[0], maxPath)
		trimmed.Command = []string{word}
		if dependsOnWorkingDir(word) {
			trimmed.WorkingDir = cut(container.WorkingDir, maxPath)
		}
	}
	trimmed.Env = neededVariables(container, trimmed.Command, keep)
	trimmed.VolumeMounts = neededMounts(&trimmed, container.VolumeMounts)
	return trimmed
}

// elsewhere stands for every source of a value, for none can be read.
var elsewhere = &corev1.EnvVarSource{}

// neededVariables returns the definitions that the command depends on, and the last one of each variable to keep.
func neededVariables(container *corev1.Container, command []string, keep func(variable string) bool) []corev1.EnvVar {
	needed := &dependencies{}
	if len(command) > 0 && len(command[0]) <= maxPath {
		needed = dependenciesOf(command[0])
	}
	var found []corev1.EnvVar
	var kept []string
	for i := len(container.Env) - 1; i >= 0; i-- {
		variable := &container.Env[i]
		last := keep(variable.Name) && !slices.Contains(kept, variable.Name)
		if last {
			kept = append(kept, variable.Name)
		}
		if !needed.meet(variable) && !last {
			continue
		}
		definition := corev1.EnvVar{Name: variable.Name, Value: cut(variable.Value, maxValue)}
		if variable.ValueFrom != nil {
			definition.ValueFrom = elsewhere
		}
		found = append(found, definition)
	}
	slices.Reverse(found)
	return slices.Clip(found)
}

// neededMounts returns, of all mounts of a trimmed container, the one that hides the first candidate which is hidden. Where
// that depends on expansions it returns the first ones, up to one more than CoversContainer reads.
func neededMounts(trimmed *corev1.Container, mounts []corev1.VolumeMount) []corev1.VolumeMount {
	if len(mounts) == 0 {
		return nil
	}
	if len(trimmed.Command) > 0 && refersToVariables(trimmed.Command[0], trimmed.Env) {
		return mountPaths(mounts[:min(len(mounts), maxMounts+1)])
	}
	found, err := lookUpCommand(trimmed)
	if err != nil {
		return nil // The answer is the error, whatever is mounted.
	}
	if hidden := found.firstHidden(mounts); hidden != nil {
		return []corev1.VolumeMount{{MountPath: hidden.mount}}
	}
	return nil
}

func mountPaths(mounts []corev1.VolumeMount) []corev1.VolumeMount {
	paths := make([]corev1.VolumeMount, 0, len(mounts))
	for i := range mounts {
		paths = append(paths, corev1.VolumeMount{MountPath: mounts[i].MountPath})
	}
	return paths
}
