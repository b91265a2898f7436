// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"path"
	"slices"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

// Paths returns the paths that an image needs in addition to the existing ones, sorted, so that the containers run its
// program, and warnings about containers that may not run it. It considers each container's command and its postStart
// and preStop hooks, because a hook runs in the restarted container too. A command whose path is unknown is an error that
// names the container and the field.
func Paths(existing []string, containers []Container) (paths, warnings []string, err error) {
	for _, container := range containers {
		for _, found := range container.commands() {
			if container.covered(existing, found.words) {
				continue
			}
			name, warning, err := container.locate(found.words)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: container %q: %s: %w", container.Source, container.Name, found.field, err)
			}
			paths = append(paths, name)
			if warning != "" {
				warnings = append(warnings, fmt.Sprintf("%s: container %q: %s: %s", container.Source, container.Name, found.field, warning))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), warnings, nil
}

type command struct {
	field string
	words []string
}

func (c Container) commands() []command {
	commands := []command{{"command", c.Command}}
	if c.Lifecycle == nil {
		return commands
	}
	if hook := c.Lifecycle.PostStart; hook != nil && hook.Exec != nil {
		commands = append(commands, command{"lifecycle.postStart.exec.command", hook.Exec.Command})
	}
	if hook := c.Lifecycle.PreStop; hook != nil && hook.Exec != nil {
		commands = append(commands, command{"lifecycle.preStop.exec.command", hook.Exec.Command})
	}
	return commands
}

// covered reports whether the container runs the program when it runs the command.
func (c Container) covered(existing, words []string) bool {
	changed := c.Container
	changed.Command = words
	return quickexit.PathsCoverContainer(existing, &changed) == nil
}

// locate returns the path for a command, and a warning or "".
func (c Container) locate(words []string) (name, warning string, err error) {
	candidates, err := quickexit.Candidates(&c.Container, words)
	if err != nil {
		return "", "", fmt.Errorf("find the path of the command: %w", err)
	}
	name = c.choose(candidates)
	if err := quickexit.ValidatePaths([]string{name}); err != nil {
		return "", "", fmt.Errorf("use the path of the command: %w", err)
	}
	switch mount := quickexit.HiddenBy(&c.Container, name); {
	case mount != "":
		warning = fmt.Sprintf("%s is below the volume mounted at %s, which hides the image's program there; mode Image cannot end this container",
			name, mount)
	case !path.IsAbs(words[0]):
		warning = fmt.Sprintf("%q is not an absolute path; it is linked at %s", words[0], name)
	}
	return name, warning, nil
}

// choose returns a candidate that no volume hides, preferably in PreferredDirectory, or else the first one.
func (c Container) choose(candidates []string) string {
	hidden := func(name string) bool { return quickexit.HiddenBy(&c.Container, name) != "" }
	visible := slices.DeleteFunc(slices.Clone(candidates), hidden)
	for _, candidate := range visible {
		if path.Dir(candidate) == quickexit.PreferredDirectory {
			return candidate
		}
	}
	return append(visible, candidates[0])[0]
}
