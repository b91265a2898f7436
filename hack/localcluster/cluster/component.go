// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Names of components of a node. Those of the second node have its name as a suffix.
const (
	containerdName = "containerd"
	kubeletName    = "kubelet"
)

// Ports of the components that exist once, all on the loopback interface.
const (
	apiServerPort         = 6443
	etcdPort              = 21379
	etcdPeerPort          = 21380
	controllerManagerPort = 21257
	schedulerPort         = 21259
)

const (
	serviceRange = "10.96.0.0/16"
	// serviceAddress is the first address of the service range. It belongs to the service kubernetes.
	serviceAddress = "10.96.0.1"
	// cgroupRoot is the control group of all processes of the cluster. Nothing else on the machine uses it.
	cgroupRoot = "/sidecar-termination-cluster"
	// cgroupSystem is the control group of the components, and of the shims that containerd starts.
	cgroupSystem = cgroupRoot + "/system"
)

// server is the API server's URL.
var server = "https://" + loopback(apiServerPort)

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Component is one process of the cluster.
type Component struct {
	Name string
	// Version is empty if the program is Debian's.
	Version   string
	Path      string
	Arguments []string
	// Environment has the variables that only this component gets.
	Environment []string
	Health      Probe
	// User is the user of the API server as which the component acts by its kubeconfig, if it has one.
	User User
	// Files are the configuration files that the component reads, by path.
	Files map[string]string
	// Addon names the addon that the component is a process of, or is empty.
	Addon string
}

// Probe says how to find out whether a component is healthy: exactly one field is set.
type Probe struct {
	// URL answers with status 200.
	URL string
	// Command ends with exit code 0.
	Command []string
}

// User is a user of the API server.
type User struct {
	Name   string
	Groups []string
}

func administrator(name string) User { return User{Name: name, Groups: []string{"system:masters"}} }

// Node is one node with a kubelet on a containerd of its own.
type Node struct {
	Name string
	// Address is the node's address, which no other machine can reach.
	Address string
	// HealthPort is where the kubelet answers health checks on the loopback interface.
	HealthPort int
	// Suffix is added to the names of the node's components.
	Suffix string
	// Labels and Taints are those with which the kubelet registers the node.
	Labels string
	Taints []corev1.Taint
}

// fargateMark is both the label and the taint of the nodes of AWS Fargate.
const fargateMark = "eks.amazonaws.com/compute-type"

// nodes are the nodes of a cluster that have a kubelet: one of the usual kind, and one that looks as those of AWS Fargate do, without
// OpenKruise's daemon. Only pods that tolerate the latter get there.
var nodes = []Node{
	{Name: "node-1", Address: "198.51.100.1", HealthPort: 21248},
	{
		Name: "fargate-1", Suffix: "-fargate-1", Address: "198.51.100.2", HealthPort: 21348,
		Labels: fargateMark + "=fargate",
		Taints: []corev1.Taint{{Key: fargateMark, Value: "fargate", Effect: corev1.TaintEffectNoSchedule}},
	},
}

// servers maps the names of all nodes, the virtual one included, to the components that serve them.
func (c *Cluster) servers() map[string]string {
	servers := map[string]string{}
	for _, node := range nodes {
		servers[node.Name] = kubeletName + node.Suffix
	}
	if slices.Contains(c.names(), virtualNode) {
		servers[virtualNodeName] = virtualNode
	}
	return servers
}

// All returns every component in the order in which they start.
func (c *Cluster) All() []Component {
	all := []Component{c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler()}
	for _, node := range nodes {
		all = append(all, c.containerd(node), c.kubelet(node))
	}
	for _, addon := range c.addons() {
		all = append(all, addon.Components...)
	}
	return all
}

// named returns the component with the name.
func (c *Cluster) named(name string) (Component, error) {
	all := c.All()
	i := slices.IndexFunc(all, func(component Component) bool { return component.Name == name })
	if i < 0 {
		return Component{}, fmt.Errorf("the cluster has no component %s: localcluster status lists them", name)
	}
	return all[i], nil
}

// built completes a component whose program the tool builds. The program has the component's name, unless there is a suffix. Each user of the
// API server gets an argument with its kubeconfig.
func (c *Cluster) built(tool toolchain.Tool, program string, component Component) Component {
	component.Name = cmp.Or(component.Name, program)
	component.Version = tool.Version()
	component.Path = filepath.Join(c.Builder.Directory(tool), program)
	if component.User.Name != "" {
		component.Arguments = append(component.Arguments, "--kubeconfig="+c.Kubeconfig(component.Name))
	}
	return component
}

// servingCertificate and servingKey are those of every server of the cluster, and authority is what signed the certificate. The key also
// signs the tokens of service accounts. The names are what servers of webhooks look for in a directory.
func (c *Cluster) servingCertificate() string { return c.Path("pki", corev1.TLSCertKey) }
func (c *Cluster) servingKey() string         { return c.Path("pki", corev1.TLSPrivateKeyKey) }
func (c *Cluster) authority() string          { return c.Path("pki", "ca.crt") }
func (c *Cluster) tokens() string             { return c.Path("pki", "tokens.csv") }
