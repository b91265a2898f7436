// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Configuration files, in which names in braces are replaced.
var (
	//go:embed containerd.toml
	containerdTemplate string
	//go:embed kubelet.yaml
	kubeletTemplate string
)

// cgroup is the control group of the node's pods.
func (n Node) cgroup() string { return cgroupRoot + "/" + n.Name }

// containerdSocket is where the containerd of a node listens.
func (c *Cluster) containerdSocket(node Node) string {
	return c.Node(node.Name, "containerd", "containerd.sock")
}

func (c *Cluster) containerd(node Node) Component {
	configuration := c.Node(node.Name, "config", "containerd.toml")
	path := func(name string) string { return c.Node(node.Name, "containerd", name) }
	return Component{
		Name:      containerdName + node.Suffix,
		Path:      "/usr/bin/containerd",
		Arguments: []string{"--config=" + configuration},
		Health:    Probe{Command: []string{"ctr", "--address", c.containerdSocket(node), "version"}},
		Files: map[string]string{
			configuration: strings.NewReplacer(
				"{root}", path("root"),
				"{state}", path("state"),
				"{socket}", c.containerdSocket(node),
				"{optional}", path("optional"),
				"{network}", filepath.Join(c.Repository, "hack", "localcluster", "cluster", "network"),
				"{runc}", path("runc"),
				"{pause}", images.PauseReference,
			).Replace(containerdTemplate),
		},
	}
}

func (c *Cluster) kubelet(node Node) Component {
	configuration, resolver := c.Node(node.Name, "config", "kubelet.yaml"), c.Node(node.Name, "config", "resolv.conf")
	// Taints can be encoded. JSON is also YAML.
	taints, _ := json.Marshal(node.Taints)
	return c.built(toolchain.Kubernetes(c.KubeletVersion), kubeletName, Component{
		Name: kubeletName + node.Suffix,
		Arguments: []string{
			"--config=" + configuration,
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.Address,
			"--root-dir=" + c.Node(node.Name, "kubelet"),
			"--node-labels=" + node.Labels,
			"--v=2",
		},
		Health: Probe{URL: "http://" + loopback(node.HealthPort) + "/healthz"},
		User:   User{Name: "system:node:" + node.Name, Groups: []string{"system:nodes"}},
		Files: map[string]string{resolver: "nameserver 127.0.0.1\n", configuration: strings.NewReplacer(
			"{address}", node.Address,
			"{healthPort}", strconv.Itoa(node.HealthPort),
			"{taints}", string(taints),
			"{certificate}", c.servingCertificate(),
			"{key}", c.servingKey(),
			"{socket}", c.containerdSocket(node),
			"{cgroup}", node.cgroup(),
			"{resolver}", resolver,
			"{logs}", c.Node(node.Name, "pod-logs"),
			"{plugins}", c.Node(node.Name, "volume-plugins"),
		).Replace(kubeletTemplate)},
	})
}
