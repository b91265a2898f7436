// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

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
	all, err := hierarchies()
	if err != nil {
		return err
	}
	identity, err := process.Start(process.Command{
		Path:        component.Path,
		Arguments:   component.Arguments,
		Environment: slices.Concat(environment, component.Environment),
		Directory:   c.layout.Root,
		Log:         c.layout.Log(component.Name),
		// One of the machine's hierarchies is enough to find the process.
		Cgroup: filepath.Join(all[0], components.CgroupSystem),
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
		return fmt.Errorf("the cluster has no component %s: localcluster status lists them", name)
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

const probeTimeout = 3 * time.Second

// probe returns nil when the component is healthy.
func (c *Cluster) probe(ctx context.Context, probe components.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if len(probe.Command) > 0 {
		if output, err := exec.CommandContext(ctx, probe.Command[0], probe.Command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", probe.Command[0], err, output)
		}
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probe.URL, nil)
	if err != nil {
		return fmt.Errorf("make a health request: %w", err)
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: c.layout.Certificate("ca")}})
	if err != nil {
		return fmt.Errorf("make a health client: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health is %s", response.Status)
	}
	return nil
}
