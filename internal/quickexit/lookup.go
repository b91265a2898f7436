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

// Covers reports whether an image with the paths has the program where a container
// without settings of its own looks for the command. No command at all is covered: the
// container then runs the entrypoint.
func Covers(paths, command []string) bool {
	return CoversContainer(paths, &corev1.Container{Command: command}) == nil
}

// CoversContainer fails unless the container, restarted with an image that has the
// paths, runs the program. The error says why it would not.
func CoversContainer(paths []string, container *corev1.Container) error {
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
		if candidate == Entrypoint || slices.Contains(paths, candidate) {
			return nil
		}
	}
	return fmt.Errorf("the image does not have %s", strings.Join(candidates, " or "))
}

func visible(container *corev1.Container, name string) error {
	if mount := HiddenBy(container, name); mount != "" {
		return fmt.Errorf("%s is hidden by what is mounted at %s", name, mount)
	}
	return nil
}

// HiddenBy returns the mount path of the container's volume that hides what an image has
// at the path, or nothing.
func HiddenBy(container *corev1.Container, name string) string {
	for _, mount := range container.VolumeMounts {
		if within(name, path.Join("/", mount.MountPath)) {
			return mount.MountPath
		}
	}
	return ""
}

// Candidates returns the paths at which the container's runtime looks for the command, in
// its order: one for a path, and one per directory of PATH for a mere name. It fails when
// they depend on what the container's definition does not say.
func Candidates(container *corev1.Container, command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, errors.New("command is empty")
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
