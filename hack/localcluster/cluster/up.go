// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Up brings the cluster up at these versions and returns when it is usable. It completes a running cluster where a process is missing,
// adds addons, and replaces kubelets by newer ones while the containers run on. It refuses other changes. Whatever is left of a cluster
// that no longer runs, or that never came up, it removes first.
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
	if !current.Complete || !slices.ContainsFunc(c.description(current.Versions).All(), c.alive) {
		if err := c.prepareMachine(ctx); err != nil {
			return err
		}
		return c.complete(ctx, state{Versions: versions})
	}
	next, err := current.Next(versions)
	if err != nil {
		return err
	}
	replaced := next.KubeletVersion != current.KubeletVersion
	current.Versions = next
	if replaced {
		if err := c.stopKubelets(ctx, next); err != nil {
			return err
		}
	}
	return c.complete(ctx, current)
}

// stopKubelets builds the kubelets that come next, and stops those that run.
func (c *Cluster) stopKubelets(ctx context.Context, next toolchain.Versions) error {
	if _, err := c.Build(ctx, next); err != nil {
		return err
	}
	description := c.description(next)
	for _, node := range description.Nodes {
		kubelet, _ := description.Named(description.ServerOf(node.Name))
		if err := c.stop(ctx, kubelet, stopTimeout); err != nil {
			return err
		}
	}
	return nil
}

// complete starts everything that does not run.
func (c *Cluster) complete(ctx context.Context, current state) error {
	description := c.description(current.Versions)
	if err := c.equip(ctx, description, current); err != nil {
		return err
	}
	missing := slices.DeleteFunc(description.All(), func(component components.Component) bool {
		return c.alive(component) && c.probe(ctx, component.Health) == nil
	})
	if err := c.startAll(ctx, description, missing); err != nil {
		return err
	}
	for _, node := range description.Nodes {
		if err := c.awaitNode(ctx, description, node.Name); err != nil {
			return err
		}
	}
	if err := c.installAddons(ctx, description, missing); err != nil {
		return err
	}
	for _, node := range description.NodeNames() {
		if err := c.awaitNode(ctx, description, node); err != nil {
			return err
		}
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
	if _, err := c.Build(ctx, current.Versions); err != nil {
		return err
	}
	if err := addAddresses(ctx, description.Nodes); err != nil {
		return err
	}
	if err := makeCgroups(append(description.Cgroups(), components.CgroupSystem)); err != nil {
		return err
	}
	if err := c.linkSocket(description); err != nil {
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
func (c *Cluster) Build(ctx context.Context, versions toolchain.Versions) ([]string, error) {
	tools := []toolchain.Tool{toolchain.Kubernetes(versions.Kubernetes), toolchain.Etcd()}
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

// startAll starts missing components other than those of addons, in order. It waits at once for those that later ones need, and for the
// others when all have been launched.
func (c *Cluster) startAll(ctx context.Context, description components.Cluster, missing []components.Component) error {
	archives, err := c.buildImages(ctx)
	if err != nil {
		return err
	}
	var launched []components.Component
	for _, component := range missing {
		if component.Addon != "" {
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

// prepareMachine installs what is missing, and removes what an earlier cluster left.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	if err := c.installPackages(ctx); err != nil {
		return err
	}
	if err := c.tearDown(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.layout.Path("logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	return c.claim()
}

// awaitNode waits until a node is Ready and pods can be created.
func (c *Cluster) awaitNode(ctx context.Context, description components.Cluster, name string) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	err = poll(ctx, 60*time.Second, func(ctx context.Context) error {
		if err := nodeReady(ctx, api, name); err != nil {
			return err
		}
		account := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}
		return api.Get(ctx, account, &corev1.ServiceAccount{})
	})
	if err != nil {
		return fmt.Errorf("node %s did not become ready: %w\n%s", name, err, tail(c.layout.Log(description.ServerOf(name))))
	}
	return nil
}

// nodeReady fails unless the node is Ready and without the taints of nodes that are not. A taint keeps pods away until some
// time after the node is Ready.
func nodeReady(ctx context.Context, api client.Client, name string) error {
	node := &corev1.Node{}
	if err := api.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("get the node: %w", err)
	}
	ready := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type == corev1.NodeReady })
	if ready < 0 {
		return errors.New("it has not reported yet")
	}
	if condition := node.Status.Conditions[ready]; condition.Status != corev1.ConditionTrue {
		return fmt.Errorf("it is not: %s", condition.Message)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("it still has the taint %s", taint.Key)
		}
	}
	return nil
}
