// SPDX-License-Identifier: Apache-2.0

package quickexit

import "strings"

// Bounds of what is read of a container to tell what its command runs. The author of a pod can write up to 1.5 MiB into
// any of these fields, and variables may refer to each other. Beyond a bound the command cannot be told.
const (
	// maxPath is the longest path that Linux accepts (PATH_MAX without its null character), and so the longest command
	// and working directory.
	maxPath = 4095
	// maxFileName is the longest name of a file that Linux accepts (NAME_MAX), and so of a command without a directory.
	maxFileName = 255
	// maxValue bounds the value of a variable as the pod has it, in bytes.
	maxValue = 16 << 10
	// maxExpanded bounds the expansions of one command and all variables that it depends on, in bytes.
	maxExpanded = 64 << 10
	// maxVariables bounds the variables that one command refers to, directly or by way of others.
	maxVariables = 64
	// maxDirectories bounds the directories of PATH.
	maxDirectories = 64
	// maxMounts bounds the volume mounts that Trim keeps of a container whose command depends on variables.
	maxMounts = 64
	// maxShown bounds what a message quotes of a name that the author of a pod has chosen, in bytes.
	maxShown = 80
)

// cut returns the text, or so much of one that is longer than the limit as tells that it is. It never keeps the rest of a
// longer text in memory.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.Clone(text[:limit+1])
}

// shown returns the name as a message may have it.
func shown(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "..."
}
