// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Trim returns a copy of the container with only the fields that CoversContainer reads: the first word of the command, and
// the working directory, variables and mount paths that it depends on. CoversContainer gives the same answer for both
// containers and every coverage. Trim also keeps the last definition of each variable for which keep returns true, in
// the container's order.
//
// Trim expands no variables. Its time and memory are linear in the size of the container. It shortens texts that exceed
// their bounds, and shares other texts with the container, but nothing else.
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

// elsewhere replaces every valueFrom, because none can be read.
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

// neededMounts returns the one mount that hides the first hidden candidate. Where that depends on expansions, it returns
// the first mounts, up to one more than CoversContainer reads.
func neededMounts(trimmed *corev1.Container, mounts []corev1.VolumeMount) []corev1.VolumeMount {
	if len(mounts) == 0 {
		return nil
	}
	if len(trimmed.Command) > 0 && refersToVariables(trimmed.Command[0], trimmed.Env) {
		return mountPaths(mounts[:min(len(mounts), maxMounts+1)])
	}
	found, err := lookUpCommand(trimmed)
	if err != nil {
		return nil // CoversContainer returns this error, whatever is mounted.
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
