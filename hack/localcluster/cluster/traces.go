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
	links, err := filepath.Glob(filepath.Join(logLinks, "*"))
	if err != nil {
		return fmt.Errorf("list the links to logs: %w", err)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, c.layout.Root+string(filepath.Separator)) {
			continue
		}
		if err := os.RemoveAll(link); err != nil {
			return fmt.Errorf("remove a link to a log: %w", err)
		}
	}
	results, err := filepath.Glob(filepath.Join(networkResults, "*"))
	if err != nil {
		return fmt.Errorf("list the results of network plugins: %w", err)
	}
	for _, result := range results {
		// A result names the network namespace, which is a file below the cluster directory.
		content, err := os.ReadFile(result)
		if err != nil || !strings.Contains(string(content), c.layout.Root+string(filepath.Separator)) {
			continue
		}
		if err := os.RemoveAll(result); err != nil {
			return fmt.Errorf("remove the result of a network plugin: %w", err)
		}
	}
	return nil
}
