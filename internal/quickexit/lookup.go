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

// CoversContainer fails unless the container, restarted with an image of the coverage,
// runs the program. The error says why it would not: it is a MissingError, a HiddenError,
// or says why the path of the command cannot be told.
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
	if len(container.Command) == 0 {
		return visible(container, Entrypoint)
	}
	candidates, err := Candidates(container, container.Command)
	if err != nil {
		return err
	}
	// The runtime takes the first one that exists and can be executed. What a volume has there cannot be known.
	for _, candidate := range candidates {
		if err := visible(container, candidate); err != nil {
			return err
		}
		if candidate == Entrypoint || has(candidate) {
			return nil
		}
	}
	return &MissingError{Candidates: candidates}
}

// MissingError means that the image does not have the program where the container looks
// for its command.
type MissingError struct {
	// Candidates are the paths at which it looks, in its order; there is at least one.
	Candidates []string
}

func (e *MissingError) Error() string {
	return "the image does not have " + strings.Join(e.Candidates, " or ")
}

// Wanted returns the path to add to the image: one of a directory that users' own
// programs are kept in, if there is one.
func (e *MissingError) Wanted() string {
	for _, candidate := range e.Candidates {
		if path.Dir(candidate) == PreferredDirectory {
			return candidate
		}
	}
	return e.Candidates[0]
}

// HiddenError means that what an image has at the path is hidden by what is mounted there,
// whatever the image.
type HiddenError struct {
	Path, Mount string
}

func (e *HiddenError) Error() string {
	return fmt.Sprintf("%s is hidden by what is mounted at %s", e.Path, e.Mount)
}

func visible(container *corev1.Container, name string) error {
	if mount := HiddenBy(container, name); mount != "" {
		return &HiddenError{Path: name, Mount: mount}
	}
	return nil
}

// HiddenBy returns the mount path of the container's volume that hides what an image has
// at the path, or nothing.
func HiddenBy(container *corev1.Container, name string) string {
	for _, mount := range container.VolumeMounts {
		if hides(mount, name) {
			return mount.MountPath
		}
	}
	return ""
}

func hides(mount corev1.VolumeMount, name string) bool {
	return within(name, path.Join("/", mount.MountPath))
}

// Candidates returns the paths at which the container's runtime looks for the command, in
// its order: one for a path, and one per directory of PATH for a mere name. It fails when
// they depend on what the container's definition does not say.
func Candidates(container *corev1.Container, command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, errors.New("command is empty")
	}
	if name := command[0]; path.IsAbs(name) && !strings.Contains(name, "$") {
		return []string{path.Clean(name)}, nil
	}
	environment := newEnvironment(container)
	name, err := environment.expand(command[0])
	if err != nil {
		return nil, fmt.Errorf("expand %q: %w", command[0], err)
	}
	switch {
	case name == "":
		return nil, errors.New("command starts with an empty word")
	case path.IsAbs(name):
		return []string{path.Clean(name)}, nil
	case strings.Contains(name, "/"):
		// Without a working directory of the container that of the image counts, which is the root.
		return []string{path.Join("/", container.WorkingDir, name)}, nil
	}
	search, err := environment.searchPath()
	if err != nil {
		return nil, fmt.Errorf("find %q in PATH: %w", name, err)
	}
	var candidates []string
	for directory := range strings.SplitSeq(search, ":") {
		if path.IsAbs(directory) {
			candidates = append(candidates, path.Join(directory, name))
		}
	}
	if len(candidates) == 0 {
		return nil, fmt.Errorf("find %q in PATH: it has no absolute directory", name)
	}
	return candidates, nil
}
