// SPDX-License-Identifier: Apache-2.0

// Package components says what a local cluster consists of: each process with its
// arguments, ports and health check, and the configuration files that they read. It
// describes only; it starts nothing and writes nothing.
package components

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// Names of the components that exist once in a cluster.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Names of the components that exist once on each node.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
)

// Ports of the components that exist once, all on the loopback interface.
const (
	apiServerPort         = 6443
	etcdPort              = 21379
	etcdPeerPort          = 21380
	controllerManagerPort = 21257
	schedulerPort         = 21259
	kubeletPort           = 21250
)

const (
	serviceRange = "10.96.0.0/16"
	// ServiceAddress is the first address of the service range. It belongs to the service kubernetes.
	ServiceAddress = "10.96.0.1"
	dnsAddress     = "10.96.0.10"
	podRange       = "127.250.0.0/16"
	// Bridge is the network interface that connects the pods.
	Bridge = "sidecar-br0"
	// CgroupRoot is the control group of all processes of the cluster. Nothing else on the machine uses it.
	CgroupRoot = "/sidecar-termination-cluster"
	// CgroupSystem is the control group of the components, and of the shims that containerd starts.
	CgroupSystem = CgroupRoot + "/system"
)

// Server is the API server's URL.
func Server() string { return "https://" + loopback(apiServerPort) }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Component is one process of the cluster.
type Component struct {
	Name      string
	Version   string
	Path      string
	Arguments []string
	// Environment has the variables that only this component gets.
	Environment []string
	Health      Probe
	// Addon names the addon that the component is a process of, or is empty.
	Addon string
}

// Probe says how to find out whether a component is healthy: exactly one field is set.
type Probe struct {
	// URL answers with status 200. Its certificate is one of the cluster's authority.
	URL string
	// Command ends with exit code 0.
	Command []string
}

// Node is one node with a kubelet on a containerd of its own.
type Node struct {
	Name string
	// Address is the node's address, which no other machine can reach.
	Address string
	// HealthPort is where the kubelet answers health checks on the loopback interface.
	HealthPort int
	// Labels and Taints are those with which the kubelet registers the node.
	Labels map[string]string
	Taints []corev1.Taint
}

// Build is a version of programs and the directory that has them.
type Build struct{ Version, Directory string }

// Cluster holds what the descriptions depend on.
type Cluster struct {
	layout.Layout
	Kubernetes, Kubelet, Etcd Build
	Nodes                     []Node
	// Addons are the further controllers of the cluster.
	Addons []Addon
}

// FargateNodeName is the node with a kubelet and without OpenKruise's daemon.
const FargateNodeName = "fargate-1"

// fargateMark is both the label and the taint of the nodes of AWS Fargate.
const fargateMark = "eks.amazonaws.com/compute-type"

// DefaultNodes are the nodes of a cluster that have a kubelet: one of the usual kind, and
// one that looks as those of AWS Fargate do. Only pods that tolerate the latter get there.
func DefaultNodes() []Node {
	return []Node{
		{Name: "node-1", Address: "198.51.100.1", HealthPort: 21248},
		{
			Name: FargateNodeName, Address: "198.51.100.2", HealthPort: 21348,
			Labels: map[string]string{fargateMark: "fargate"},
			Taints: []corev1.Taint{{Key: fargateMark, Value: "fargate", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

// NodeNames are the names of all nodes, the virtual one included.
func (c Cluster) NodeNames() []string {
	var names []string
	for _, node := range c.Nodes {
		names = append(names, node.Name)
	}
	for _, addon := range c.Addons {
		for _, process := range addon.Processes {
			if process.Node != "" {
				names = append(names, process.Node)
			}
		}
	}
	return names
}

// ServerOf is the name of the component that serves the node.
func (c Cluster) ServerOf(node string) string {
	for _, kubelets := range c.Nodes {
		if kubelets.Name == node {
			return c.kubelet(kubelets).Name
		}
	}
	return addons.VirtualNode
}

// Cgroups are the control groups of the nodes with a kubelet.
func (c Cluster) Cgroups() []string {
	var groups []string
	for _, node := range c.Nodes {
		groups = append(groups, node.Cgroup())
	}
	return groups
}

// All returns every component in the order in which they start.
func (c Cluster) All() []Component {
	all := []Component{c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler()}
	for _, node := range c.Nodes {
		all = append(all, c.containerd(node), c.kubelet(node))
	}
	for _, addon := range c.Addons {
		for _, process := range addon.Processes {
			all = append(all, c.Component(addon, process))
		}
	}
	return all
}

// Named returns the component with the name.
func (c Cluster) Named(name string) (Component, bool) {
	for _, component := range c.All() {
		if component.Name == name {
			return component, true
		}
	}
	return Component{}, false
}

// onNode returns the name of a component on a node: the bare name on the first node.
func (c Cluster) onNode(component string, node Node) string {
	if len(c.Nodes) > 0 && c.Nodes[0].Name == node.Name {
		return component
	}
	return component + "-" + node.Name
}
