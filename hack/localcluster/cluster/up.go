// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Up brings the cluster up at these versions and returns when it is usable. A running
// cluster of the same versions is completed where a process is missing and is otherwise
// left alone. It may gain addons. One with older kubelets gets newer ones, while its containers run on. Another
// one is refused. Whatever is left of a cluster that no longer runs,
// or that never came up, is removed first.
func (c *Cluster) Up(ctx context.Context, versions toolchain.Versions) error {
	if err := requireRoot(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	current, err := c.loadState()
	if err != nil {
		return err
	}
	switch {
	case !current.Complete || !c.running(current):
		current = state{Versions: versions, Kruise: versions.HasKruise()}
		if err := c.prepareMachine(ctx, current); err != nil {
			return err
		}
	case current.UpgradesKubelets(versions):
		current.Versions = versions
		if err := c.stopKubelets(ctx, current); err != nil {
			return err
		}
	case current.GainsAddons(versions):
		current.Versions = versions
	case current.Versions != versions:
		return fmt.Errorf("a cluster of %s is running: run localcluster down first", current.Versions)
	}
	return c.complete(ctx, current)
}

// stopKubelets builds the kubelets that come next, and stops those that run.
func (c *Cluster) stopKubelets(ctx context.Context, next state) error {
	if _, err := c.Build(ctx, next.Versions, next.Kruise); err != nil {
		return err
	}
	description := c.description(next.Versions)
	for _, node := range description.Nodes {
		kubelet, _ := description.Named(description.ServerOf(node.Name))
		if err := c.stop(ctx, kubelet, stopTimeout); err != nil {
			return err
		}
	}
	return nil
}

// running reports whether any component runs.
func (c *Cluster) running(previous state) bool {
	return slices.ContainsFunc(c.description(previous.Versions).All(), c.alive)
}

// complete starts everything that does not run.
func (c *Cluster) complete(ctx context.Context, current state) error {
	description := c.description(current.Versions)
	current.Kruise = current.Kruise || current.HasKruise()
	if err := c.equip(ctx, description, current); err != nil {
		return err
	}
	missing := slices.DeleteFunc(description.All(), func(component components.Component) bool {
		return component.Kruise && !current.Kruise || c.alive(component) && c.probe(ctx, component.Health) == nil
	})
	if len(missing) > 0 {
		if err := c.startAll(ctx, description, missing); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(missing, func(component components.Component) bool { return component.Kruise }) {
		if err := c.installKruise(ctx, description); err != nil {
			return err
		}
	}
	if err := c.awaitNodes(ctx, description); err != nil {
		return err
	}
	if err := c.installAddons(ctx, description, missing); err != nil {
		return err
	}
	current.Complete = true
	if err := c.saveState(current); err != nil {
		return err
	}
	c.progress.Say("the cluster is ready: %s, KUBECONFIG=%s", current.Versions, c.layout.AdminKubeconfig())
	return nil
}

// equip gives the cluster what its processes need: programs, addresses, control groups and files.
func (c *Cluster) equip(ctx context.Context, description components.Cluster, current state) error {
	if _, err := c.Build(ctx, current.Versions, current.Kruise); err != nil {
		return err
	}
	if err := addAddresses(ctx, description.Nodes); err != nil {
		return err
	}
	if err := makeCgroups(description.Cgroups()); err != nil {
		return err
	}
	if err := c.saveState(current); err != nil {
		return err
	}
	if err := c.writeCredentials(description); err != nil {
		return err
	}
	return c.writeConfiguration(description)
}

// Build builds the programs of a cluster that are not in the cache, and returns their directories.
func (c *Cluster) Build(ctx context.Context, versions toolchain.Versions, kruise bool) ([]string, error) {
	tools := []toolchain.Tool{toolchain.Kubernetes(versions.Kubernetes), toolchain.Etcd(), toolchain.VirtualNode()}
	if kruise {
		tools = append(tools, versions.KruiseTool())
	}
	for _, addon := range versions.Addons() {
		tools = append(tools, toolchain.Addon(addon))
	}
	var directories []string
	for _, tool := range tools {
		directory, err := c.builder.Ensure(ctx, tool)
		if err != nil {
			return directories, err
		}
		directories = append(directories, directory)
	}
	// Older kubelets come from a tool that builds more.
	directory, err := c.builder.Ensure(ctx, versions.KubeletTool(), components.Kubelet)
	if err == nil && !slices.Contains(directories, directory) {
		directories = append(directories, directory)
	}
	return directories, err
}

// startAll starts components other than those of OpenKruise and of addons, in order. It waits at once for those that later ones need, and for the
// others when all have been launched.
func (c *Cluster) startAll(ctx context.Context, description components.Cluster, missing []components.Component) error {
	archives, err := c.buildImages(ctx)
	if err != nil {
		return err
	}
	var launched []components.Component
	for _, component := range missing {
		if component.Kruise || component.Addon != "" {
			continue
		}
		if err := c.launch(component); err != nil {
			return err
		}
		node, isRuntime := description.NodeOf(component)
		if !isRuntime && component.Name != components.Etcd && component.Name != components.APIServer {
			launched = append(launched, component)
			continue
		}
		if err := c.await(ctx, component); err != nil {
			return err
		}
		if isRuntime {
			if err := importImages(ctx, description.ContainerdSocket(node), archives...); err != nil {
				return err
			}
		}
	}
	for _, component := range launched {
		if err := c.await(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

// prepareMachine installs what is missing, removes what an earlier cluster left, and checks that the ports are free.
func (c *Cluster) prepareMachine(ctx context.Context, wanted state) error {
	if err := c.installPackages(ctx); err != nil {
		return err
	}
	if err := c.tearDown(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.layout.Path("logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := c.claim(); err != nil {
		return err
	}
	for _, component := range c.description(wanted.Versions).All() {
		if component.Kruise && !wanted.Kruise {
			continue
		}
		if err := checkPorts(component); err != nil {
			return err
		}
	}
	return nil
}

// awaitNodes waits until all nodes are Ready and pods can be created.
func (c *Cluster) awaitNodes(ctx context.Context, description components.Cluster) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	for _, node := range description.NodeNames() {
		if err := poll(ctx, 60*time.Second, func(ctx context.Context) error { return nodeReady(ctx, api, node) }); err != nil {
			return fmt.Errorf("node %s did not become ready: %w\n%s", node, err, tail(c.layout.Log(description.ServerOf(node))))
		}
	}
	if err := poll(ctx, 30*time.Second, func(ctx context.Context) error { return defaultAccountExists(ctx, api) }); err != nil {
		return fmt.Errorf("the default service account did not appear: %w\n%s", err,
			tail(c.layout.Log(components.ControllerManager)))
	}
	return nil
}

// Names returns the names of all components, for help texts.
func (c *Cluster) Names() string {
	var names []string
	for _, component := range c.description(defaultVersions()).All() {
		names = append(names, component.Name)
	}
	return strings.Join(names, ", ")
}

// defaultVersions serve where only the names of components matter, which all versions share. They have every addon.
func defaultVersions() toolchain.Versions {
	return toolchain.Versions{
		Kubernetes: toolchain.DefaultKubernetes, KubeletVersion: toolchain.DefaultKubernetes, Kruise: toolchain.DefaultKruise,
		With: strings.Join(addons.Names(), ","),
	}
}
