// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// Status writes a table of the components and the nodes, and reports whether all of them are well.
func (c *Cluster) Status(ctx context.Context, output io.Writer) (bool, error) {
	description, state, err := c.current()
	if err != nil {
		return false, err
	}
	api, err := c.connect()
	if err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tVERSION\tLOG")
	well := true
	for _, component := range description.All() {
		condition, pid := c.condition(ctx, component)
		well = well && condition == "healthy"
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", component.Name, condition, pid, cmp.Or(component.Version, "Debian's"), c.layout.Log(component.Name))
	}
	for _, node := range description.NodeNames() {
		condition := "ready"
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		if err := nodeReady(ctx, api, node); err != nil {
			condition, well = "not ready: "+err.Error(), false
		}
		cancel()
		_, _ = fmt.Fprintf(table, "%s (node)\t%s\t\t%s\t\n", node, condition, state.KubeletVersion)
	}
	if err := table.Flush(); err != nil {
		return false, fmt.Errorf("write the status: %w", err)
	}
	return well, nil
}

func (c *Cluster) condition(ctx context.Context, component components.Component) (condition, pid string) {
	identity, err := process.Load(c.layout.Record(component.Name))
	switch {
	case err != nil || !identity.Alive():
		return "stopped", "-"
	case c.probe(ctx, component.Health) != nil:
		return "unhealthy", fmt.Sprint(identity.PID)
	default:
		return "healthy", fmt.Sprint(identity.PID)
	}
}
