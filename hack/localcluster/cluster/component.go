// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

// StartComponent starts one component of the cluster and waits until it is healthy. It
// does nothing when it is.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	return c.withComponent(name, func(component components.Component) error { return c.start(ctx, component) })
}

// StopComponent stops one component of the cluster and returns when its process is gone.
// It does nothing when it does not run.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.withComponent(name, func(component components.Component) error { return c.stop(ctx, component, stopTimeout) })
}

// KillComponent ends one component of the cluster as a crash would, and returns when its
// process is gone. It does nothing when it does not run.
func (c *Cluster) KillComponent(ctx context.Context, name string) error {
	return c.withComponent(name, func(component components.Component) error { return c.stop(ctx, component, 0) })
}

// RestartComponent stops one component of the cluster if it runs, starts it and waits
// until it is healthy.
func (c *Cluster) RestartComponent(ctx context.Context, name string) error {
	return c.withComponent(name, func(component components.Component) error {
		if err := c.stop(ctx, component, stopTimeout); err != nil {
			return err
		}
		return c.start(ctx, component)
	})
}

// withComponent calls the function with the component of the current cluster that has the
// name, while no other command changes the cluster.
func (c *Cluster) withComponent(name string, change func(components.Component) error) error {
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
	return change(component)
}
