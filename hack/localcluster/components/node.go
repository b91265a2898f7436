// SPDX-License-Identifier: Apache-2.0

package components

import (
	"net"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// CgroupRoot is the control group that holds those of all pods on all nodes. Nothing
// else on the machine uses it.
const CgroupRoot = "/sidecar-termination-cluster"

// Cgroup is the control group of the node's pods.
func (n Node) Cgroup() string { return CgroupRoot + "/" + n.Name }

// OnNode are the components of one node, apart from Kruise's.
type OnNode struct {
	Containerd Component
	Kubelet    Component
}

// On returns the components of the node.
func (c Cluster) On(node Node) OnNode {
	return OnNode{Containerd: c.containerd(node), Kubelet: c.kubelet(node)}
}

// ContainerdSocket is where the containerd of a node listens.
func (c Cluster) ContainerdSocket(node Node) string {
	return c.Node(node.Name, "containerd", "containerd.sock")
}

func (c Cluster) containerd(node Node) Component {
	return Component{
		Name:         c.onNode(Containerd, node),
		Path:         "/usr/bin/containerd",
		Arguments:    []string{"--config=" + c.containerdConfiguration(node)},
		Environment:  environment(),
		Health:       Probe{Command: []string{"/usr/bin/ctr", "--address", c.ContainerdSocket(node), "version"}},
		StartTimeout: startTimeout,
		StopTimeout:  10 * time.Second,
	}
}

func (c Cluster) kubelet(node Node) Component {
	return Component{
		Name:    c.onNode(Kubelet, node),
		Version: c.Version,
		Path:    filepath.Join(c.KubernetesBinaries, Kubelet),
		Arguments: []string{
			"--config=" + c.kubeletConfiguration(node),
			"--kubeconfig=" + c.Kubeconfig(kubeletUser(node)),
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.Address,
			"--root-dir=" + c.Node(node.Name, "kubelet"),
			"--node-labels=" + labels.Set(node.Labels).String(),
			"--v=2",
		},
		Environment:  environment(),
		Listens:      []string{net.JoinHostPort(node.Address, strconv.Itoa(kubeletPort)), loopback(node.HealthPort)},
		Health:       Probe{URL: "http://" + loopback(node.HealthPort) + "/healthz"},
		StartTimeout: startTimeout,
		StopTimeout:  10 * time.Second,
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
