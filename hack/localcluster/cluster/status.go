// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Status writes a table of the components and the nodes. It returns an error unless all of them are well.
func (c *Cluster) Status(ctx context.Context, output io.Writer) error {
	c, err := c.current()
	if err != nil {
		return err
	}
	api, err := c.connect()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tVERSION\tLOG")
	well := true
	for _, component := range c.All() {
		condition, pid := "healthy", c.identity(component).PID
		if !c.alive(component) {
			condition, pid, well = "stopped", 0, false
		} else if err := probe(ctx, component.Health); err != nil {
			condition, well = "unhealthy", false
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", component.Name, condition, pid, cmp.Or(component.Version, "Debian's"), c.Log(component.Name))
	}
	for _, node := range slices.Sorted(maps.Keys(c.servers())) {
		condition := "ready"
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		if err := nodeReady(ctx, api, node); err != nil {
			condition, well = "not ready: "+err.Error(), false
		}
		cancel()
		_, _ = fmt.Fprintf(table, "%s (node)\t%s\t\t%s\t\n", node, condition, c.KubeletVersion)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	if !well {
		return errors.New("the cluster is not well")
	}
	return nil
}
