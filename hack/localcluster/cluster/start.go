// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const (
	// startTimeout bounds the time until a component is healthy, and stopTimeout the time from SIGTERM to SIGKILL.
	startTimeout = 120 * time.Second
	stopTimeout  = 15 * time.Second
	probeTimeout = 3 * time.Second
)

// environment is what every process gets besides its own variables.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// logLines is how much of a log a failure shows.
const logLines = 30

// identity returns the process of the component that this tool started last. A missing or damaged record stands for none.
func (c *Cluster) identity(component Component) process.Identity {
	var identity process.Identity
	content, _ := os.ReadFile(c.Record(component.Name))
	_ = json.Unmarshal(content, &identity)
	return identity
}

func (c *Cluster) alive(component Component) bool { return c.identity(component).Alive() }

// start starts the component unless it runs, and waits until it is healthy. The first component of an addon makes what the addon needs,
// and a container runtime gets the images of the cluster.
func (c *Cluster) start(ctx context.Context, component Component) error {
	if component.Addon != "" {
		if addon := c.addon(component.Addon); addon.Components[0].Name == component.Name {
			if err := c.installAddon(ctx, addon); err != nil {
				return fmt.Errorf("install %s: %w", component.Addon, err)
			}
		}
	}
	if err := c.launch(component); err != nil {
		return err
	}
	if err := c.await(ctx, component); err != nil {
		return err
	}
	for _, node := range nodes {
		if component.Name == containerdName+node.Suffix {
			return c.importImages(ctx, c.containerdSocket(node))
		}
	}
	return nil
}

// launch starts the component unless it runs, without waiting for it.
func (c *Cluster) launch(component Component) error {
	if c.alive(component) {
		return nil
	}
	identity, err := process.Start(process.Command{
		Path:        component.Path,
		Arguments:   component.Arguments,
		Environment: slices.Concat(environment, component.Environment),
		Directory:   c.Root(),
		Log:         c.Log(component.Name),
		// One of the machine's hierarchies is enough to find the process.
		Cgroup: filepath.Join(hierarchies()[0], cgroupSystem),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", component.Name, err)
	}
	return saveJSON(c.Record(component.Name), identity)
}

// await waits until the component is healthy. It fails early when the process ends.
func (c *Cluster) await(ctx context.Context, component Component) error {
	begin := time.Now()
	err := progress.Poll(ctx, pollInterval, startTimeout, func(ctx context.Context) error {
		if !c.alive(component) {
			return nil
		}
		return probe(ctx, component.Health)
	})
	if err == nil && !c.alive(component) {
		err = errors.New("the process ended")
	}
	if err != nil {
		return fmt.Errorf("%s did not become healthy: %w\n%s", component.Name, err, tail(c.Log(component.Name)))
	}
	progress.Say("%s is healthy (%.1f s)", component.Name, time.Since(begin).Seconds())
	return nil
}

// stop ends the component and forgets it: by SIGTERM, and by SIGKILL after the grace period. Without grace it does so at once,
// as a crash would. It does nothing when the component does not run.
func (c *Cluster) stop(ctx context.Context, component Component, grace time.Duration) error {
	if err := process.Stop(ctx, c.identity(component), grace); err != nil {
		return fmt.Errorf("stop %s: %w", component.Name, err)
	}
	if err := os.RemoveAll(c.Record(component.Name)); err != nil {
		return fmt.Errorf("forget %s: %w", component.Name, err)
	}
	return nil
}

// tail returns the last lines of a log, under a line that names it.
func tail(file string) string {
	return fmt.Sprintf("the end of %s:\n%s", file, process.Tail(file, logLines))
}

// ChangeComponent starts one component of the cluster, unless it runs, and waits until it is healthy. Or it stops or kills the component,
// if it runs, and waits until it is gone. The action is start, stop or kill.
func (c *Cluster) ChangeComponent(ctx context.Context, action, name string) error {
	return c.change(func(c *Cluster) error {
		component, err := c.named(name)
		switch {
		case err != nil:
			return err
		case action == "start":
			return c.start(ctx, component)
		case action == "kill":
			return c.stop(ctx, component, 0)
		default:
			return c.stop(ctx, component, stopTimeout)
		}
	})
}

// healthClient accepts all certificates, because some components make their own.
var healthClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// probe returns nil when a component is healthy.
func probe(ctx context.Context, probe Probe) error {
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
	response, err := healthClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health is %s", response.Status)
	}
	return nil
}
