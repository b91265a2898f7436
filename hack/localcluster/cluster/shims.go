// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// killShims kills the processes between containerd and its containers, which outlive
// containerd, and removes their sockets, which lie outside the cluster directory.
func (c *Cluster) killShims(ctx context.Context) error {
	sockets := c.shimSockets()
	err := stopMatching(ctx, 0, func(arguments []string) bool {
		index := slices.Index(arguments, "-address")
		return filepath.Base(arguments[0]) == "containerd-shim-runc-v2" && index > 0 && index+1 < len(arguments) &&
			strings.HasPrefix(arguments[index+1], c.layout.Root+string(filepath.Separator))
	})
	if err != nil {
		return fmt.Errorf("stop the shims of containers: %w", err)
	}
	for _, socket := range sockets {
		if err := os.RemoveAll(socket); err != nil {
			return fmt.Errorf("remove a shim's socket: %w", err)
		}
	}
	return nil
}

// shimSockets returns the sockets that the shims of the cluster listen on, as far as they
// are known.
func (c *Cluster) shimSockets() []string {
	var sockets []string
	// Directories may vanish during the walk, and there may be none.
	_ = filepath.WalkDir(c.layout.Path("nodes"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if entry.IsDir() && entry.Name() == "rootfs" {
			return fs.SkipDir
		}
		if entry.IsDir() || entry.Name() != "address" {
			return nil
		}
		if content, err := os.ReadFile(path); err == nil {
			if socket, found := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://"); found && strings.HasPrefix(socket, "/run/containerd/s/") {
				sockets = append(sockets, socket)
			}
		}
		return nil
	})
	return sockets
}
