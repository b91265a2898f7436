// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// Down removes the cluster, running or not, and restores the machine. Logs stay until
// the next Up.
func (c *Cluster) Down(ctx context.Context) error {
	if err := requireRoot(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.tearDown(ctx); err != nil {
		return err
	}
	c.progress.Say("the cluster is down")
	return nil
}

// tearDown works in any state of the cluster: all that it removes may be missing. It leaves
// shared resources alone if another cluster uses them.
func (c *Cluster) tearDown(ctx context.Context) error {
	other, err := c.claimant()
	if err != nil {
		return err
	}
	shared := []func() error{
		func() error { return killPods(ctx) },
		func() error { return removeCgroups(ctx) },
		func() error { return removeNetwork(ctx) },
		releaseClaim,
	}
	if other != "" {
		shared = nil
	}
	own := []func() error{
		func() error { return c.killShims(ctx) },
		func() error { return unmountBelow(c.layout.Root) },
		c.unlinkSocket,
		c.removeTraces,
		c.removeFiles,
	}
	if err := c.stopAll(ctx); err != nil {
		return err
	}
	for _, step := range append(shared, own...) {
		if err := step(); err != nil {
			return fmt.Errorf("tear the cluster down: %w", err)
		}
	}
	return nil
}

// tearDownGrace is enough for components whose data is removed anyway.
const tearDownGrace = 3 * time.Second

// stopAll stops the components, those started last first.
func (c *Cluster) stopAll(ctx context.Context) error {
	all := c.description(defaultVersions()).All()
	for _, component := range slices.Backward(all) {
		if err := c.stop(ctx, component, tearDownGrace); err != nil {
			return err
		}
	}
	return c.stopStrays(ctx, all)
}

func (c *Cluster) removeFiles() error {
	if err := requireNoMounts(c.layout.Root); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.layout.Root)
	if err != nil {
		return fmt.Errorf("list the cluster directory: %w", err)
	}
	for _, entry := range entries {
		if slices.Contains([]string{lockName, "logs"}, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(c.layout.Path(entry.Name())); err != nil {
			return fmt.Errorf("empty the cluster directory: %w", err)
		}
	}
	return nil
}
