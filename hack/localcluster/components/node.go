// SPDX-License-Identifier: Apache-2.0

package components

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/labels"
)

// Cgroup is the control group of the node's pods.
func (n Node) Cgroup() string { return CgroupRoot + "/" + n.Name }

// NodeOf returns the node whose containerd the component is, if it is one.
func (c Cluster) NodeOf(containerd Component) (Node, bool) {
	for _, node := range c.Nodes {
		if c.onNode(Containerd, node) == containerd.Name {
			return node, true
		}
	}
	return Node{}, false
}

// ContainerdSocket is where the containerd of a node listens.
func (c Cluster) ContainerdSocket(node Node) string {
	return c.Node(node.Name, "containerd", "containerd.sock")
}

func (c Cluster) containerd(node Node) Component {
	return Component{
		Name:      c.onNode(Containerd, node),
		Path:      "/usr/bin/containerd",
		Arguments: []string{"--config=" + c.containerdConfiguration(node)},
		Health:    Probe{Command: []string{"ctr", "--address", c.ContainerdSocket(node), "version"}},
	}
}

func (c Cluster) kubelet(node Node) Component {
	return Component{
		Name:    c.onNode(Kubelet, node),
		Version: c.Kubelet.Version,
		Path:    filepath.Join(c.Kubelet.Directory, Kubelet),
		Arguments: []string{
			"--config=" + c.kubeletConfiguration(node),
			"--kubeconfig=" + c.Kubeconfig(kubeletUser(node)),
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.Address,
			"--root-dir=" + c.Node(node.Name, "kubelet"),
			"--node-labels=" + labels.Set(node.Labels).String(),
			"--v=2",
		},
		Health: Probe{URL: "http://" + loopback(node.HealthPort) + "/healthz"},
	}
}

// kubeletUser names both the kubeconfig of a node's kubelet and its certificate files.
func kubeletUser(node Node) string { return Kubelet + "-" + node.Name }

func (c Cluster) containerdConfiguration(node Node) string {
	return c.Node(node.Name, "config", "containerd.toml")
}

func (c Cluster) kubeletConfiguration(node Node) string {
	return c.Node(node.Name, "config", "kubelet.yaml")
}

func (c Cluster) networkConfiguration(node Node) string {
	return c.Node(node.Name, "cni", "10-bridge.conflist")
}
