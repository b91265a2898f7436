// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

const (
	// startTimeout bounds the time until a component is healthy, and stopTimeout the time from SIGTERM to SIGKILL.
	startTimeout = 120 * time.Second
	stopTimeout  = 15 * time.Second
)

// environment is what every process gets besides its own variables.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// logLines is how much of a log a failure shows.
const logLines = 30

// alive reports whether the process of the component that this tool started runs.
func (c *Cluster) alive(component components.Component) bool {
	identity, err := process.Load(c.layout.Record(component.Name))
	return err == nil && identity.Alive()
}

// launch starts the component unless it runs, without waiting for it.
func (c *Cluster) launch(component components.Component) error {
	if c.alive(component) {
		return nil
	}
	if err := checkPorts(component); err != nil {
		return err
	}
	identity, err := process.Start(process.Command{
		Path:        component.Path,
		Arguments:   component.Arguments,
		Environment: slices.Concat(environment, component.Environment),
		Directory:   c.layout.Root,
		Log:         c.layout.Log(component.Name),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", component.Name, err)
	}
	return identity.Save(c.layout.Record(component.Name))
}

// await waits until the component is healthy. It fails early when the process ends.
func (c *Cluster) await(ctx context.Context, component components.Component) error {
	begin := time.Now()
	err := poll(ctx, startTimeout, func(ctx context.Context) error {
		if !c.alive(component) {
			return finalError{errors.New("the process ended")}
		}
		return c.probe(ctx, component.Health)
	})
	if err != nil {
		return fmt.Errorf("%s did not become healthy: %w\n%s", component.Name, err, tail(c.layout.Log(component.Name)))
	}
	c.progress.Say("%s is healthy (%.1f s)", component.Name, time.Since(begin).Seconds())
	return nil
}

func (c *Cluster) start(ctx context.Context, component components.Component) error {
	if err := c.launch(component); err != nil {
		return err
	}
	return c.await(ctx, component)
}

// stop ends the component and forgets it: by SIGTERM, and by SIGKILL after the grace period. Without grace it does so at once,
// as a crash would. It does nothing when the component does not run.
func (c *Cluster) stop(ctx context.Context, component components.Component, grace time.Duration) error {
	record := c.layout.Record(component.Name)
	identity, err := process.Load(record)
	if err != nil {
		return err
	}
	if err := process.Stop(ctx, identity, grace); err != nil {
		return fmt.Errorf("stop %s: %w", component.Name, err)
	}
	if err := os.RemoveAll(record); err != nil {
		return fmt.Errorf("forget %s: %w", component.Name, err)
	}
	return nil
}

// tail returns the last lines of a log, under a line that names it.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if len(lines) > logLines {
		lines = lines[len(lines)-logLines:]
	}
	return fmt.Sprintf("the end of %s:\n%s", file, strings.Join(lines, "\n"))
}
