// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

// OpenKruise's daemon looks for containerd's socket in this directory.
const daemonDirectory = "/hostvarrun/containerd"

// linkSocket makes the containerd of the node visible to OpenKruise's daemon.
func (c *Cluster) linkSocket(description components.Cluster, node components.Node) error {
	target := filepath.Dir(description.ContainerdSocket(node))
	if current, err := os.Readlink(daemonDirectory); err == nil && current == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(daemonDirectory), 0o755); err != nil {
		return fmt.Errorf("make the directory where OpenKruise's daemon looks for containerd: %w", err)
	}
	if err := os.Symlink(target, daemonDirectory); err != nil {
		return fmt.Errorf("link containerd's socket for OpenKruise's daemon: %w", err)
	}
	return nil
}

// unlinkSocket removes the link if it is this cluster's, and its directory if nothing
// else is in it.
func (c *Cluster) unlinkSocket() error {
	target, err := os.Readlink(daemonDirectory)
	if err != nil || !strings.HasPrefix(target, c.layout.Root+string(filepath.Separator)) {
		return nil
	}
	if err := os.Remove(daemonDirectory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the link for OpenKruise's daemon: %w", err)
	}
	// Fails when someone else put something there, which is then kept.
	_ = os.Remove(filepath.Dir(daemonDirectory))
	return nil
}
