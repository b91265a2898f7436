// SPDX-License-Identifier: Apache-2.0

// Package quickexit knows where the quick-exit image has its program and which commands
// that covers. A sidecar is ended by a restart with this image; since the image of a
// container can be changed but its command cannot, the image must have the program at
// the path of that command. The package is pure: it builds nothing and reads nothing.
package quickexit

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Entrypoint is the path of the program in every quick-exit image. Containers without a
// command run it; all other paths are hard links to it.
const Entrypoint = "/quick-exit"

// User is the user and the group that the image runs as unless the pod says otherwise.
// It is numeric, so that the kubelet can see that it is not root.
const User = "65532:65532"

// SearchPath is the PATH of the image: commands named without a directory are
// found in the directories where other images keep them.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PreferredDirectory is where a command that is named without a directory is best linked
// if it is in PATH.
const PreferredDirectory = "/usr/local/bin"

// ValidatePaths fails unless every path can be that of a file in an image with the
// entrypoint: absolute, clean, visible in a container, and neither a directory of
// another one nor below another one. A path may occur more than once.
func ValidatePaths(paths []string) error {
	for _, name := range paths {
		if err := validatePath(name); err != nil {
			return err
		}
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(paths), Entrypoint)))
	files := map[string]bool{}
	for _, name := range all {
		files[name] = true
	}
	for _, name := range all {
		for directory := path.Dir(name); directory != "/"; directory = path.Dir(directory) {
			if files[directory] {
				return fmt.Errorf("%q cannot be a file, because %q is below it", directory, name)
			}
		}
	}
	return nil
}

// maximumPathLength is what Linux accepts.
const maximumPathLength = 4095

func validatePath(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("path is empty")
	case !path.IsAbs(name):
		return fmt.Errorf("path %q is not absolute", name)
	case strings.HasSuffix(name, "/"):
		return fmt.Errorf("path %q names a directory, not a file", name)
	case path.Clean(name) != name:
		return fmt.Errorf("path %q is not in its shortest form, %q", name, path.Clean(name))
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("path %q has a null character", name)
	case len(name) > maximumPathLength:
		return fmt.Errorf("path of %d bytes starting with %q is longer than %d", len(name), name[:32], maximumPathLength)
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

// within reports whether a clean path is the clean directory or below it. It makes no copy of either.
func within(name, directory string) bool {
	return directory == "/" || name == directory ||
		len(name) > len(directory) && name[len(directory)] == '/' && strings.HasPrefix(name, directory)
}

// isFile reports whether the clean path is that of the file in the clean directory, which is empty for the root. It makes
// no copy of any of them.
func isFile(name, directory, file string) bool {
	return len(name) == len(directory)+1+len(file) && name[len(directory)] == '/' &&
		strings.HasSuffix(name, file) && strings.HasPrefix(name, directory)
}
