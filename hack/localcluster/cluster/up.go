// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Up brings the cluster up at a version of Kubernetes and returns when it is usable. A
// running cluster of the same version and kubelet is completed where a process is missing
// and is otherwise left alone; another one is refused. Whatever is left of a cluster
// that no longer runs, or that never came up, is removed first.
func (c *Cluster) Up(ctx context.Context, version string, kubelet kubelets.Kubelet, kruise bool) error {
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
	wanted := state{Kubernetes: version, Kubelet: kubelet.Name, Kruise: kruise}
	if !current.Complete || !c.running(current) {
		current = wanted
		if err := c.prepareMachine(ctx, current); err != nil {
			return err
		}
	} else if current.release() != wanted.release() {
		return fmt.Errorf("a cluster of %s is running: run localcluster down first", current.release())
	}
	return c.complete(ctx, current, kruise)
}

// running reports whether any component runs.
func (c *Cluster) running(previous state) bool {
	return slices.ContainsFunc(c.description(previous.Kubernetes, previous.kubelet()).All(), c.alive)
}

// complete starts everything that does not run.
func (c *Cluster) complete(ctx context.Context, current state, kruise bool) error {
	description := c.description(current.Kubernetes, current.kubelet())
	current.Kruise = current.Kruise || kruise
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
	current.Complete = true
	if err := c.saveState(current); err != nil {
		return err
	}
	c.progress.Say("the cluster is ready: %s, KUBECONFIG=%s", current.release(), c.layout.AdminKubeconfig())
	return nil
}

// equip gives the cluster what its processes need: programs, addresses, control groups and files.
func (c *Cluster) equip(ctx context.Context, description components.Cluster, current state) error {
	tools := []toolchain.Tool{
		toolchain.Kubernetes(current.Kubernetes), toolchain.Kubelet(current.Kubernetes, current.kubelet()),
		toolchain.Etcd(), toolchain.VirtualNode(),
	}
	if current.Kruise {
		tools = append(tools, toolchain.Kruise())
	}
	for _, tool := range tools {
		if _, err := c.builder.Ensure(ctx, tool); err != nil {
			return err
		}
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

// startAll starts components other than OpenKruise's, in order. It waits at once for those that later ones need, and for the
// others when all have been launched.
func (c *Cluster) startAll(ctx context.Context, description components.Cluster, missing []components.Component) error {
	archives, err := c.buildImages(ctx)
	if err != nil {
		return err
	}
	var launched []components.Component
	for _, component := range missing {
		if component.Kruise {
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
	for _, component := range c.description(wanted.Kubernetes, wanted.kubelet()).All() {
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
	for _, component := range c.description(toolchain.DefaultKubernetes, kubelets.Kubelet{}).All() {
		names = append(names, component.Name)
	}
	return strings.Join(names, ", ")
}
