// SPDX-License-Identifier: Apache-2.0

// Package quickexit knows the paths of the program in a quick-exit image, and which commands they cover. Mode Image ends a
// sidecar by restarting it with this image. A container's image can be changed but its command cannot, so the image
// must have the program at the path of the command. The package is pure: it builds nothing and reads nothing.
package quickexit

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Entrypoint is the path of the program in every quick-exit image. Containers without a command run it, and all other
// paths are hard links to it.
const Entrypoint = "/quick-exit"

// User is the user and group of the image, unless the pod sets others. It is numeric, so that the kubelet can verify that
// it is not root.
const User = "65532:65532"

// SearchPath is the PATH of the image: the directories where other images keep commands.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PreferredDirectory is where to link a command without a directory, if it is in PATH.
const PreferredDirectory = "/usr/local/bin"

// ValidatePaths fails unless all paths can be files in one image together with the entrypoint: absolute, clean, visible
// in a container, and none below another. A path may occur more than once.
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
	case len(name) > maxPath:
		return fmt.Errorf("path of %d bytes starting with %q is longer than %d", len(name), name[:32], maxPath)
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

// isFile reports whether the clean path is the file in the clean directory, which is "" for the root. It copies nothing.
func isFile(name, directory, file string) bool {
	return len(name) == len(directory)+1+len(file) && name[len(directory)] == '/' &&
		strings.HasSuffix(name, file) && strings.HasPrefix(name, directory)
}
