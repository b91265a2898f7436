// SPDX-License-Identifier: Apache-2.0

package quickexit

import "strings"

// Bounds of the fields that determine which program a container runs. A pod's author can write up to 1.5 MiB into any of
// them, and variables may refer to each other. Beyond a bound the command is unknown.
const (
	// maxPath is the longest path that Linux accepts (PATH_MAX without its null character), and so bounds the command and
	// the working directory.
	maxPath = 4095
	// maxFileName is the longest file name that Linux accepts (NAME_MAX), and so bounds a command without a directory.
	maxFileName = 255
	// maxValue bounds the value of a variable before expansion, in bytes.
	maxValue = 16 << 10
	// maxExpanded bounds the expansions of one command and all variables that it depends on, in bytes.
	maxExpanded = 64 << 10
	// maxVariables bounds the variables that one command refers to, directly or indirectly.
	maxVariables = 64
	// maxDirectories bounds the directories of PATH.
	maxDirectories = 64
	// maxMounts bounds the volume mounts that Trim keeps of a container whose command depends on variables.
	maxMounts = 64
	// maxShown bounds a user's names in messages, in bytes.
	maxShown = 80
)

// cut shortens a text to one byte more than the limit, so that it still exceeds the limit. The result does not share
// memory with a longer text.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.Clone(text[:limit+1])
}
