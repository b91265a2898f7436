// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// CoversContainer fails unless the container, restarted with an image of the coverage, runs the program. The error is a
// MissingError, a HiddenError, or says why the path of the command is unknown.
func CoversContainer(coverage Coverage, container *corev1.Container) error {
	if coverage.isEverything() {
		return nil
	}
	return covers(coverage.has, container)
}

// PathsCoverContainer is CoversContainer for an image with the paths and no others.
func PathsCoverContainer(paths []string, container *corev1.Container) error {
	return covers(func(name string) bool { return slices.Contains(paths, name) }, container)
}

func covers(has func(name string) bool, container *corev1.Container) error {
	found, err := lookUpCommand(container)
	if err != nil {
		return err
	}
	if found.expanded && len(container.VolumeMounts) > maxMounts {
		return fmt.Errorf("the command depends on variables, and the container mounts more than %d volumes", maxMounts)
	}
	hidden := found.firstHidden(container.VolumeMounts)
	// The runtime runs the first candidate that exists and is executable. The content of a volume is unknown.
	for i := range found.len() {
		candidate := found.candidate(i)
		if hidden != nil && hidden.index == i {
			return &HiddenError{Path: candidate, Mount: hidden.mount}
		}
		if candidate == Entrypoint || has(candidate) {
			return nil
		}
	}
	return &MissingError{Candidates: found.candidates()}
}

// MissingError means that the image does not have the program at any path where the runtime looks for the command.
type MissingError struct {
	// Candidates are the paths at which the runtime looks, in order; there is at least one.
	Candidates []string
}

func (e *MissingError) Error() string {
	return "the image does not have " + strings.Join(e.Candidates, " or ")
}

// Wanted returns the path to add to the image: in PreferredDirectory if possible.
func (e *MissingError) Wanted() string {
	for _, candidate := range e.Candidates {
		if path.Dir(candidate) == PreferredDirectory {
			return candidate
		}
	}
	return e.Candidates[0]
}

// HiddenError means that a volume hides the image's file at the path, whatever the image.
type HiddenError struct {
	Path, Mount string
}

func (e *HiddenError) Error() string {
	return fmt.Sprintf("%s is hidden by what is mounted at %s", e.Path, e.Mount)
}

// HiddenBy returns the mount path of the container's volume that hides an image's file at the path, or "". The path must
// be clean and absolute.
func HiddenBy(container *corev1.Container, name string) string {
	if hidden := (lookup{path: name}).firstHidden(container.VolumeMounts); hidden != nil {
		return hidden.mount
	}
	return ""
}

// Candidates returns the paths at which the runtime looks for the command, in order: one for a path, and one per directory
// of PATH for a file name. It fails when they depend on values that the container's spec does not contain, and beyond the
// bounds of this package.
func Candidates(container *corev1.Container, command []string) ([]string, error) {
	found, err := lookUp(container, command)
	if err != nil {
		return nil, err
	}
	return found.candidates(), nil
}

// lookup is where the runtime looks for a command: at a path, or for a file in directories.
type lookup struct {
	// path is clean and absolute; empty when the command is a file name.
	path string
	// file is the name that the runtime looks for in the directories, in order. Directories are clean and absolute, and the
	// root is "".
	file        string
	directories []string
	// expanded is true when the command or PATH refers to variables.
	expanded bool
}

// lookUpCommand is lookUp for the container's command, or without one for the image's entrypoint.
func lookUpCommand(container *corev1.Container) (lookup, error) {
	if len(container.Command) == 0 {
		return lookup{path: Entrypoint}, nil
	}
	return lookUp(container, container.Command)
}

func lookUp(container *corev1.Container, command []string) (lookup, error) {
	if len(command) == 0 {
		return lookup{}, errors.New("command is empty")
	}
	word := command[0]
	if len(word) > maxPath {
		return lookup{}, fmt.Errorf("the first word of the command is longer than %d bytes", maxPath)
	}
	if path.IsAbs(word) && !strings.Contains(word, "$") {
		return lookup{path: path.Clean(word)}, nil
	}
	variables, err := definitions(container, word)
	if err != nil {
		return lookup{}, fmt.Errorf("expand %q: %w", word, err)
	}
	found, err := expandAndLookUp(word, container.WorkingDir, newEnvironment(variables))
	found.expanded = refersToVariables(word, variables)
	return found, err
}

func expandAndLookUp(word, workingDir string, environment *environment) (lookup, error) {
	name, err := environment.expand(word)
	if err != nil {
		return lookup{}, fmt.Errorf("expand %q: %w", word, err)
	}
	switch {
	case name == "":
		return lookup{}, errors.New("command starts with an empty word")
	case len(name) > maxPath:
		return lookup{}, fmt.Errorf("expand %q: it becomes longer than %d bytes", word, maxPath)
	case path.IsAbs(name):
		return lookup{path: path.Clean(name)}, nil
	case strings.Contains(name, "/"):
		return lookUpRelative(workingDir, name)
	}
	return lookUpFile(environment, name)
}

// lookUpRelative looks in the working directory of the container, or else of the image, which is the root.
func lookUpRelative(workingDir, name string) (lookup, error) {
	if len(workingDir) > maxPath {
		return lookup{}, fmt.Errorf("the working directory is longer than %d bytes", maxPath)
	}
	return lookup{path: path.Join("/", workingDir, name)}, nil
}

func lookUpFile(environment *environment, name string) (lookup, error) {
	switch {
	case len(name) > maxFileName:
		return lookup{}, fmt.Errorf("the command is a file name of more than %d bytes", maxFileName)
	case name == ".", name == "..":
		return lookup{}, fmt.Errorf("the command %q is a directory", name)
	}
	search, err := environment.searchPath()
	if err != nil {
		return lookup{}, fmt.Errorf("find %q in PATH: %w", name, err)
	}
	directories, err := directoriesOf(search)
	if err != nil {
		return lookup{}, fmt.Errorf("find %q in PATH: %w", name, err)
	}
	return lookup{file: name, directories: directories}, nil
}

// directoriesOf returns the absolute directories of a PATH, clean.
func directoriesOf(search string) ([]string, error) {
	var directories []string
	for directory := range strings.SplitSeq(search, ":") {
		if !path.IsAbs(directory) {
			continue
		}
		if len(directories) == maxDirectories {
			return nil, fmt.Errorf("it has more than %d directories", maxDirectories)
		}
		directories = append(directories, strings.TrimSuffix(path.Clean(directory), "/"))
	}
	if len(directories) == 0 {
		return nil, errors.New("it has no absolute directory")
	}
	return directories, nil
}

// len is the number of candidates.
func (l lookup) len() int {
	if l.path != "" {
		return 1
	}
	return len(l.directories)
}

// candidate returns the i-th path where the command may be.
func (l lookup) candidate(i int) string {
	if l.path != "" {
		return l.path
	}
	return l.directories[i] + "/" + l.file
}

func (l lookup) candidates() []string {
	all := make([]string, 0, l.len())
	for i := range l.len() {
		all = append(all, l.candidate(i))
	}
	return all
}

// hiddenCandidate is a candidate that a volume hides.
type hiddenCandidate struct {
	index int
	mount string
}

// firstHidden returns the first candidate that a volume hides, with the first mount that does, or nil. It copies no paths,
// because a container may have very many mounts.
func (l lookup) firstHidden(mounts []corev1.VolumeMount) *hiddenCandidate {
	var first *hiddenCandidate
	before := l.len()
	for i := range mounts {
		if hidden := l.firstWithin(mountedAt(&mounts[i]), before); hidden < before {
			first, before = &hiddenCandidate{hidden, mounts[i].MountPath}, hidden
		}
		if before == 0 {
			break
		}
	}
	return first
}

// firstWithin returns the index of the first of count candidates that is at or below the clean and absolute path, or count.
func (l lookup) firstWithin(above string, count int) int {
	if l.path != "" {
		if within(l.path, above) {
			return 0
		}
		return count
	}
	for i, directory := range l.directories[:count] {
		if within(directory, above) || isFile(above, directory, l.file) {
			return i
		}
	}
	return count
}

// mountedAt returns the clean and absolute path of the mount.
func mountedAt(mount *corev1.VolumeMount) string {
	if path.IsAbs(mount.MountPath) {
		return path.Clean(mount.MountPath)
	}
	return path.Join("/", mount.MountPath)
}
