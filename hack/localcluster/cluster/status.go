// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"text/tabwriter"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// Status writes a table of the components and the nodes, and reports whether all of them
// are well. A cluster without OpenKruise may be.
func (c *Cluster) Status(ctx context.Context, output io.Writer) (bool, error) {
	description, state, err := c.current()
	if err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tVERSION\tLOG")
	well := true
	for _, component := range description.All() {
		condition, pid := c.condition(ctx, component, state)
		well = well && (condition == "healthy" || condition == "not installed")
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", component.Name, condition, pid, version(ctx, component), c.layout.Log(component.Name))
	}
	for _, node := range description.NodeNames() {
		condition := "ready"
		if err := c.nodeReady(ctx, node); err != nil {
			condition, well = "not ready: "+err.Error(), false
		}
		_, _ = fmt.Fprintf(table, "%s (node)\t%s\t\t%s\t\n", node, condition, state.KubeletVersion)
	}
	if err := table.Flush(); err != nil {
		return false, fmt.Errorf("write the status: %w", err)
	}
	return well, nil
}

func (c *Cluster) condition(ctx context.Context, component components.Component, state state) (condition, pid string) {
	identity, err := process.Load(c.layout.Record(component.Name))
	switch {
	case component.Kruise && !state.Kruise:
		return "not installed", "-"
	case err != nil || !identity.Alive():
		return "stopped", "-"
	case c.probe(ctx, component.Health) != nil:
		return "unhealthy", fmt.Sprint(identity.PID)
	default:
		return "healthy", fmt.Sprint(identity.PID)
	}
}

func (c *Cluster) nodeReady(ctx context.Context, node string) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return nodeReady(ctx, api, node)
}

// version asks a program for its version when the component does not say it.
func version(ctx context.Context, component components.Component) string {
	if component.Version != "" {
		return component.Version
	}
	output, err := exec.CommandContext(ctx, component.Path, "--version").Output()
	fields := strings.Fields(string(output))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return fields[2]
}
