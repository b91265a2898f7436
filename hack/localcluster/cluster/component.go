// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
)

// Change is what a command does to one component.
type Change struct {
	// Stop ends the process, if it runs, and waits until it is gone. Kill does so at once, as a crash would.
	Stop, Kill bool
	// Start starts the process, unless it runs, and waits until it is healthy.
	Start bool
}

// ChangeComponent changes one component of the cluster, while no other command changes the cluster.
func (c *Cluster) ChangeComponent(ctx context.Context, name string, change Change) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	description, _, err := c.current()
	if err != nil {
		return err
	}
	component, known := description.Named(name)
	if !known {
		return fmt.Errorf("there is no component %s: choose one of %s", name, c.Names())
	}
	grace := stopTimeout
	if change.Kill {
		grace = 0
	}
	if change.Stop || change.Kill {
		if err := c.stop(ctx, component, grace); err != nil {
			return err
		}
	}
	if change.Start {
		return c.start(ctx, component)
	}
	return nil
}
