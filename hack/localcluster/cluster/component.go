// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
)

// StartComponent starts one component of the cluster and waits until it is healthy. It
// does nothing when it is.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
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
	return c.start(ctx, component)
}

// StopComponent stops one component of the cluster and returns when its process is gone.
// It does nothing when it does not run.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
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
	return c.stop(ctx, component)
}
