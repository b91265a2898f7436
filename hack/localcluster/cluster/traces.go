// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Directories outside the cluster's own in which other programs note each container, at
// paths that cannot be configured.
const (
	logLinks       = "/var/log/containers"
	networkResults = "/var/lib/cni/results"
)

// removeTraces removes what the kubelet and the network plugins noted about the cluster's
// containers outside the cluster directory.
func (c *Cluster) removeTraces() error {
	own := c.layout.Root + string(filepath.Separator)
	isOwnLink := func(path string) bool {
		target, err := os.Readlink(path)
		return err == nil && strings.HasPrefix(target, own)
	}
	// A result names the network namespace, which is a file below the cluster directory.
	isOwnResult := func(path string) bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), own)
	}
	for directory, isOwn := range map[string]func(string) bool{logLinks: isOwnLink, networkResults: isOwnResult} {
		traces, err := filepath.Glob(filepath.Join(directory, "*"))
		if err != nil {
			return fmt.Errorf("list %s: %w", directory, err)
		}
		for _, trace := range traces {
			if !isOwn(trace) {
				continue
			}
			if err := os.RemoveAll(trace); err != nil {
				return fmt.Errorf("remove a trace of a container: %w", err)
			}
		}
	}
	return nil
}
