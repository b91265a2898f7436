// SPDX-License-Identifier: Apache-2.0

// Package quickexit decides which commands a quick-exit image covers. Mode Image ends a sidecar by restarting it with this
// image. A container's image can be changed but its command cannot, so the image must have the program at the path of the
// command. The rule compares texts and expands nothing: a container that it does not cover may still run the program, but
// a container that it covers does. The package is pure, and its time is linear in the size of a container.
package quickexit

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Entrypoint is the path of the program in every quick-exit image. Containers without a command run it.
const Entrypoint = "/quick-exit"

// User is the user and group of the shipped image. It is numeric, so that the kubelet can verify that it is not root.
const User = "65532:65532"

// SearchPath is the PATH of the shipped image, and of container runtimes for images without one.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// preferred is the path that a message suggests for a command that is the name of a file.
const preferred = "/usr/local/bin/"

// maxCommand limits the first word of a command, in bytes. The API limits a path in quickExitPaths to 256 characters, which
// have at most as many bytes.
const maxCommand = 1024

// PathVariable is the environment variable that changes where a command without a path is found.
const PathVariable = "PATH"

var directories = strings.Split(SearchPath, ":")

// CoversContainer fails unless the container, restarted with an image of the coverage, runs the program. The error is a
// MissingError, a HiddenError, or says why no list of paths can cover the command.
func CoversContainer(coverage Coverage, container *corev1.Container) error {
	if coverage.set != nil && coverage.set.everything {
		return nil
	}
	candidates, err := candidatesOf(container)
	if err != nil {
		return err
	}
	hidden, mount := firstHidden(container, candidates)
	// The runtime runs the first candidate that exists. The content of a volume is unknown.
	for i, candidate := range candidates {
		if i == hidden {
			return &HiddenError{Path: candidate, Mount: mount}
		}
		if candidate == Entrypoint || coverage.has(candidate) {
			return nil
		}
	}
	if len(candidates) == 1 {
		return &MissingError{Path: candidates[0]}
	}
	return &MissingError{Path: preferred + container.Command[0]}
}

// MissingError means that the image does not have the program at the path of the command.
type MissingError struct {
	// Path is where the image needs the program.
	Path string
}

func (e *MissingError) Error() string { return "the image does not have " + e.Path }

// HiddenError means that a volume hides the image's file at the path, whatever the image.
type HiddenError struct {
	Path, Mount string
}

func (e *HiddenError) Error() string {
	return fmt.Sprintf("%s is hidden by what is mounted at %s", e.Path, e.Mount)
}

// candidatesOf returns the paths where the runtime looks for the container's command, in order. It fails for a command that
// is neither an absolute path nor the name of a file in the image's PATH.
func candidatesOf(container *corev1.Container) ([]string, error) {
	if len(container.Command) == 0 {
		return []string{Entrypoint}, nil
	}
	word := container.Command[0]
	switch {
	case len(word) > maxCommand:
		return nil, fmt.Errorf("the first word of the command is longer than %d bytes", maxCommand)
	case strings.Contains(word, "$"):
		return nil, fmt.Errorf("%q may refer to a variable", word)
	case path.IsAbs(word):
		return []string{word}, validatePath(word)
	case word == "", strings.Contains(word, "/"):
		return nil, fmt.Errorf("%q is not an absolute path", word)
	case setsPath(container):
		return nil, fmt.Errorf("%q depends on the container's own PATH", word)
	}
	candidates := make([]string, 0, len(directories))
	for _, directory := range directories {
		candidates = append(candidates, directory+"/"+word)
	}
	return candidates, nil
}

func setsPath(container *corev1.Container) bool {
	return slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == PathVariable })
}

// firstHidden returns the index of the first candidate that a volume or a device hides, and where that is mounted. If none
// is hidden, the index is the number of candidates. It copies only mount paths that are not clean.
func firstHidden(container *corev1.Container, candidates []string) (index int, mount string) {
	index = len(candidates)
	check := func(mountedAt string) {
		clean := path.Clean(mountedAt)
		if !path.IsAbs(clean) {
			clean = path.Join("/", clean)
		}
		for i := range index {
			if within(candidates[i], clean) {
				index, mount = i, mountedAt
				return
			}
		}
	}
	for i := range container.VolumeMounts {
		check(container.VolumeMounts[i].MountPath)
	}
	for i := range container.VolumeDevices {
		check(container.VolumeDevices[i].DevicePath)
	}
	return index, mount
}

// validatePath fails unless the path can be a file of an image that is visible in containers.
func validatePath(name string) error {
	switch {
	case !path.IsAbs(name):
		return fmt.Errorf("path %q is not absolute", name)
	case strings.HasSuffix(name, "/"):
		return fmt.Errorf("path %q names a directory, not a file", name)
	case path.Clean(name) != name:
		return fmt.Errorf("path %q is not in its shortest form, %q", name, path.Clean(name))
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("path %q has a null character", name)
	case len(name) > maxCommand:
		return fmt.Errorf("path of %d bytes starting with %q is longer than %d", len(name), name[:32], maxCommand)
	}
	for _, provided := range providedByRuntime {
		if within(name, provided) {
			return fmt.Errorf("path %q is hidden in every container by its runtime's %s", name, provided)
		}
	}
	return nil
}

// providedByRuntime are the paths that container runtimes and the kubelet mount into every container.
var providedByRuntime = []string{"/dev", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/proc", "/sys"}

// within reports whether a clean path is at or below the clean directory. It copies neither.
func within(name, directory string) bool {
	return directory == "/" || name == directory ||
		len(name) > len(directory) && name[len(directory)] == '/' && strings.HasPrefix(name, directory)
}
