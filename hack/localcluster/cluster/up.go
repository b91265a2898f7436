// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Up brings the cluster up at the versions that the environment names, and returns when it is usable. It completes a running cluster where a
// process is missing, and adds addons. It refuses other changes. Whatever is left of a cluster that no longer runs, or that never came up, it
// removes first.
func (c *Cluster) Up(ctx context.Context) error {
	versions, err := FromEnvironment()
	if err != nil {
		return err
	}
	unlock, err := c.lockMachine(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	current := c.loadState()
	if !current.Complete || !slices.ContainsFunc(c.at(current.Versions).All(), c.alive) {
		if err := c.prepareMachine(ctx); err != nil {
			return err
		}
		return c.complete(ctx, state{Versions: versions})
	}
	next, err := current.next(versions)
	if err != nil {
		return err
	}
	return c.complete(ctx, state{Versions: next, Complete: true})
}

// prepareMachine installs what is missing, and removes what an earlier cluster left.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	if err := installPackages(ctx); err != nil {
		return err
	}
	if err := c.tearDown(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Path("logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	return layout.WriteFile(claimFile, []byte(c.Root()+"\n"))
}

// complete starts everything that does not run, and waits until the cluster is usable.
func (c *Cluster) complete(ctx context.Context, current state) error {
	c = c.at(current.Versions)
	if err := c.equip(ctx, current); err != nil {
		return err
	}
	for _, component := range c.All() {
		if c.alive(component) && probe(ctx, component.Health) == nil {
			continue
		}
		if err := c.start(ctx, component); err != nil {
			return err
		}
	}
	for node, component := range c.servers() {
		if err := c.awaitNode(ctx, node, component); err != nil {
			return err
		}
	}
	current.Complete = true
	if err := saveJSON(c.State(), current); err != nil {
		return err
	}
	progress.Say("the cluster is ready: %s, KUBECONFIG=%s", current.Versions, c.AdminKubeconfig())
	return nil
}

// equip gives the cluster what its processes need: programs, addresses, control groups and files.
func (c *Cluster) equip(ctx context.Context, current state) error {
	if err := c.build(ctx); err != nil {
		return err
	}
	if err := addAddresses(ctx); err != nil {
		return err
	}
	if err := makeCgroups(); err != nil {
		return err
	}
	if err := link(daemonDirectory, filepath.Dir(c.containerdSocket(nodes[0]))); err != nil {
		return err
	}
	kubectl := filepath.Join(c.Builder.Directory(toolchain.Kubernetes(current.Kubernetes)), "kubectl")
	if err := link(c.Kubectl(), kubectl); err != nil {
		return err
	}
	if err := saveJSON(c.State(), current); err != nil {
		return err
	}
	if err := c.writeCredentials(); err != nil {
		return err
	}
	for _, component := range c.All() {
		for file, content := range component.Files {
			if err := layout.WriteFile(file, []byte(content)); err != nil {
				return err
			}
		}
	}
	return nil
}

// link makes a symbolic link, and its directory.
func link(file, target string) error {
	if current, err := os.Readlink(file); err == nil && current == target {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.Symlink(target, file)
	}
	if err != nil {
		return fmt.Errorf("link %s to %s: %w", file, target, err)
	}
	return nil
}

// build builds the programs of a cluster that are not in the cache.
func (c *Cluster) build(ctx context.Context) error {
	tools := []toolchain.Tool{toolchain.Kubernetes(c.Kubernetes), toolchain.Etcd()}
	for _, addon := range c.addons() {
		tools = append(tools, addon.Tool)
	}
	for _, tool := range tools {
		if _, err := c.Builder.Ensure(ctx, tool); err != nil {
			return err
		}
	}
	// Older kubelets come from a tool that builds more.
	_, err := c.Builder.Ensure(ctx, toolchain.Kubernetes(c.KubeletVersion), kubeletName)
	return err
}

// awaitNode waits until a node, which the component serves, is Ready and pods can be created.
func (c *Cluster) awaitNode(ctx context.Context, name, component string) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	err = progress.Poll(ctx, pollInterval, 60*time.Second, func(ctx context.Context) error {
		if err := nodeReady(ctx, api, name); err != nil {
			return err
		}
		account := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}
		return api.Get(ctx, account, &corev1.ServiceAccount{})
	})
	if err != nil {
		return fmt.Errorf("node %s did not become ready: %w\n%s", name, err, tail(c.Log(component)))
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
