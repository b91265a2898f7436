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
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Up brings the cluster up at a version of Kubernetes and returns when it is usable. A
// running cluster of the same version is completed where a process is missing and is
// otherwise left alone; one of another version is refused. Whatever is left of a cluster
// that no longer runs, or that never came up, is removed first.
func (c *Cluster) Up(ctx context.Context, version string, kruise bool) error {
	if err := requireRoot(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	previous, err := c.loadState()
	if err != nil {
		return err
	}
	if previous.Complete && c.running(previous) {
		if previous.Kubernetes != version {
			return fmt.Errorf("a cluster of Kubernetes %s is running: run localcluster down first", previous.Kubernetes)
		}
		return c.complete(ctx, previous, kruise)
	}
	return c.fresh(ctx, state{Kubernetes: version, Kruise: kruise})
}

// running reports whether any component runs.
func (c *Cluster) running(previous state) bool {
	return slices.ContainsFunc(c.description(previous.Kubernetes).All(), c.alive)
}

// complete starts what is missing of a running cluster.
func (c *Cluster) complete(ctx context.Context, previous state, kruise bool) error {
	description := c.description(previous.Kubernetes)
	if err := c.equip(ctx, description); err != nil {
		return err
	}
	missing, err := c.startMissing(ctx, description, previous)
	if err != nil {
		return err
	}
	if kruise && !previous.Kruise {
		missing++
		if err := c.addKruise(ctx, description, previous); err != nil {
			return err
		}
	}
	if err := c.awaitNodes(ctx, description); err != nil {
		return err
	}
	if missing == 0 {
		c.progress.Say("the cluster is already up: Kubernetes %s, KUBECONFIG=%s", previous.Kubernetes, c.layout.AdminKubeconfig())
		return nil
	}
	c.sayReady(previous.Kubernetes)
	return nil
}

// equip gives a running cluster what its processes need. It was brought up with all of it,
// unless by an earlier version of this tool that knew fewer of them.
func (c *Cluster) equip(ctx context.Context, description components.Cluster) error {
	if _, err := c.builder.Ensure(ctx, toolchain.VirtualNode()); err != nil {
		return err
	}
	if err := prepareNodes(ctx, description); err != nil {
		return err
	}
	if err := c.writeCredentials(description); err != nil {
		return err
	}
	return c.writeConfiguration(description)
}

// startMissing starts the processes that do not run, and returns how many those were.
func (c *Cluster) startMissing(ctx context.Context, description components.Cluster, previous state) (int, error) {
	missing := 0
	for _, component := range description.All() {
		if component.Kruise && !previous.Kruise || c.alive(component) && c.probe(ctx, component.Health) == nil {
			continue
		}
		missing++
		if err := c.start(ctx, component); err != nil {
			return 0, err
		}
		for _, node := range description.Nodes {
			if description.On(node).Containerd.Name != component.Name {
				continue
			}
			archives, err := c.buildImages(ctx)
			if err != nil {
				return 0, err
			}
			if err := importImages(ctx, description.ContainerdSocket(node), archives); err != nil {
				return 0, err
			}
		}
	}
	return missing, nil
}

func (c *Cluster) sayReady(version string) {
	c.progress.Say("the cluster is ready: Kubernetes %s, KUBECONFIG=%s", version, c.layout.AdminKubeconfig())
}

// fresh brings up a new cluster.
func (c *Cluster) fresh(ctx context.Context, wanted state) error {
	if err := c.prepareMachine(ctx, wanted); err != nil {
		return err
	}
	description := c.description(wanted.Kubernetes)
	if err := c.saveState(wanted); err != nil {
		return err
	}
	if err := c.writeCredentials(description); err != nil {
		return err
	}
	if err := c.writeConfiguration(description); err != nil {
		return err
	}
	archives, err := c.buildImages(ctx)
	if err != nil {
		return err
	}
	if err := c.startControlPlane(ctx, description); err != nil {
		return err
	}
	if err := c.startNodes(ctx, description, archives); err != nil {
		return err
	}
	for _, name := range []string{components.ControllerManager, components.Scheduler, components.VirtualNode} {
		component, _ := description.Named(name)
		if err := c.await(ctx, component); err != nil {
			return err
		}
	}
	if wanted.Kruise {
		if err := c.installKruise(ctx, description); err != nil {
			return err
		}
	}
	if err := c.awaitNodes(ctx, description); err != nil {
		return err
	}
	wanted.Complete = true
	if err := c.saveState(wanted); err != nil {
		return err
	}
	c.sayReady(wanted.Kubernetes)
	return nil
}

// prepareMachine installs and builds what is missing, removes what an earlier cluster
// left, and checks that the cluster has what it needs.
func (c *Cluster) prepareMachine(ctx context.Context, wanted state) error {
	if err := c.installPackages(ctx); err != nil {
		return err
	}
	if err := c.buildTools(ctx, wanted); err != nil {
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
	description := c.description(wanted.Kubernetes)
	for _, component := range description.All() {
		if component.Kruise && !wanted.Kruise {
			continue
		}
		if err := checkPorts(component); err != nil {
			return err
		}
	}
	return prepareNodes(ctx, description)
}

// prepareNodes gives the machine what the nodes need outside the cluster directory.
func prepareNodes(ctx context.Context, description components.Cluster) error {
	if err := addAddresses(ctx, description.Nodes); err != nil {
		return err
	}
	return makeCgroups(description.Cgroups())
}

func (c *Cluster) buildTools(ctx context.Context, wanted state) error {
	tools := []toolchain.Tool{toolchain.Kubernetes(wanted.Kubernetes), toolchain.Etcd(), toolchain.VirtualNode()}
	if wanted.Kruise {
		tools = append(tools, toolchain.Kruise())
	}
	for _, tool := range tools {
		if _, err := c.builder.Ensure(ctx, tool); err != nil {
			return err
		}
	}
	return nil
}

// startControlPlane returns when the API server serves; what only needs it may still
// be starting.
func (c *Cluster) startControlPlane(ctx context.Context, description components.Cluster) error {
	for _, name := range []string{components.Etcd, components.APIServer} {
		component, _ := description.Named(name)
		if err := c.start(ctx, component); err != nil {
			return err
		}
	}
	for _, name := range []string{components.ControllerManager, components.Scheduler} {
		component, _ := description.Named(name)
		if err := c.launch(component); err != nil {
			return err
		}
	}
	return nil
}

// startNodes starts all nodes at once. The virtual one may still be starting.
func (c *Cluster) startNodes(ctx context.Context, description components.Cluster, archives []string) error {
	virtual, _ := description.Named(components.VirtualNode)
	if err := c.launch(virtual); err != nil {
		return err
	}
	started := make(chan error, len(description.Nodes))
	for _, node := range description.Nodes {
		go func() { started <- c.startNode(ctx, description, node, archives) }()
	}
	var failures []error
	for range description.Nodes {
		failures = append(failures, <-started)
	}
	return errors.Join(failures...)
}

func (c *Cluster) startNode(ctx context.Context, description components.Cluster, node components.Node, archives []string) error {
	on := description.On(node)
	if err := c.start(ctx, on.Containerd); err != nil {
		return err
	}
	if err := importImages(ctx, description.ContainerdSocket(node), archives); err != nil {
		return err
	}
	return c.start(ctx, on.Kubelet)
}

// awaitNodes waits until all nodes are Ready and pods can be created.
func (c *Cluster) awaitNodes(ctx context.Context, description components.Cluster) error {
	clients, err := c.connect()
	if err != nil {
		return err
	}
	for _, node := range description.NodeNames() {
		if err := poll(ctx, 60*time.Second, func(ctx context.Context) error { return clients.nodeReady(ctx, node) }); err != nil {
			return fmt.Errorf("node %s did not become ready: %w\n%s", node, err, tail(c.layout.Log(description.ServerOf(node))))
		}
	}
	if err := poll(ctx, 30*time.Second, clients.defaultAccountExists); err != nil {
		return fmt.Errorf("the default service account did not appear: %w\n%s", err,
			tail(c.layout.Log(components.ControllerManager)))
	}
	return nil
}

// Names returns the names of all components, for help texts.
func (c *Cluster) Names() string {
	var names []string
	for _, component := range c.description(toolchain.DefaultKubernetes).All() {
		names = append(names, component.Name)
	}
	return strings.Join(names, ", ")
}
