// SPDX-License-Identifier: Apache-2.0

// Package layout says where the local cluster keeps its files, and writes and locks them.
package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// maximumRoot is the longest cluster directory for which the paths of all unix sockets below it stay within the kernel's limit of 107 bytes.
const maximumRoot = 60

// Layout is where everything of one repository lies. All paths that it returns are absolute.
type Layout struct {
	// Repository is the root of the operator's repository.
	Repository string
}

// Find returns the layout of the repository that holds the working directory. It fails when the path is too long for unix sockets.
func Find() (Layout, error) {
	repository, err := Repository()
	if err != nil {
		return Layout{}, err
	}
	found := Layout{Repository: repository}
	if root := found.Root(); len(root) > maximumRoot {
		return Layout{}, fmt.Errorf("%s is too long for unix sockets (%d bytes, at most %d): move the repository", root, len(root), maximumRoot)
	}
	return found, nil
}

// Root returns the cluster directory. Nothing that it holds outlives the cluster, except the logs and the lock file.
func (l Layout) Root() string { return filepath.Join(l.Repository, ".cluster") }

// Repository returns the repository that holds the working directory: the nearest directory upwards that has hack/localcluster.
func Repository() (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(directory, "hack", "localcluster")); err == nil {
			return directory, nil
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return "", errors.New("not inside the operator's repository: no hack/localcluster in any parent directory")
		}
		directory = parent
	}
}

// Path returns a path below the cluster directory.
func (l Layout) Path(elements ...string) string {
	return filepath.Join(append([]string{l.Root()}, elements...)...)
}

// State returns the file that says what the cluster was brought up with.
func (l Layout) State() string { return l.Path("state.json") }

// Node returns a path below the directory of one node.
func (l Layout) Node(node string, elements ...string) string {
	return l.Path(append([]string{"nodes", node}, elements...)...)
}

// Log returns the log file of a component.
func (l Layout) Log(component string) string { return l.Path("logs", component+".log") }

// Record returns the file that identifies the running process of a component.
func (l Layout) Record(component string) string { return l.Path("run", component+".json") }

// Kubeconfig returns the kubeconfig of a component.
func (l Layout) Kubeconfig(component string) string { return l.Path("kubeconfigs", component) }

// AdminKubeconfig returns the kubeconfig that people use.
func (l Layout) AdminKubeconfig() string { return l.Path("kubeconfig") }

// Kubectl returns a path of kubectl that does not depend on its version.
func (l Layout) Kubectl() string { return l.Path("bin", "kubectl") }

// Cache returns the directory of built binaries, shared by all clusters of a user.
func Cache() (string, error) {
	if directory := os.Getenv("SIDECAR_TERMINATION_CACHE"); directory != "" {
		return filepath.Join(directory, "bin"), nil
	}
	directory, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(directory, "sidecar-termination-operator", "bin"), nil
}

// WriteFile writes a file, and makes its directory if there is none.
func WriteFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of %s: %w", filepath.Base(file), err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

// Lock waits until no other process has locked the file, and locks it until the returned function is called. It makes the
// file and its directory if there are none.
func Lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of a lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
