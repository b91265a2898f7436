// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// claimFile names the directory of the one cluster that the machine may have: ports,
// addresses and control groups are the same for all.
const claimFile = "/run/sidecar-termination-cluster"

// claimant returns the directory of another cluster on this machine, or nothing.
func (c *Cluster) claimant() (string, error) {
	content, err := os.ReadFile(claimFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read which cluster the machine has: %w", err)
	}
	directory := strings.TrimSpace(string(content))
	if directory == c.layout.Root {
		return "", nil
	}
	// If somebody removed the directory by hand, nothing can take the cluster down.
	other := layout.Layout{Root: directory}
	if _, err := os.Stat(other.State()); err != nil {
		return "", nil
	}
	return directory, nil
}

// claim makes the machine this cluster's, unless it is another's.
func (c *Cluster) claim() error {
	other, err := c.claimant()
	if err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("this machine has the cluster of %s: run localcluster down there first", filepath.Dir(other))
	}
	return layout.WriteFile(claimFile, []byte(c.layout.Root+"\n"))
}

func releaseClaim() error {
	if err := os.Remove(claimFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget which cluster the machine has: %w", err)
	}
	return nil
}
