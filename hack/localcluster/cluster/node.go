// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Configuration files, in which names in braces are replaced.
var (
	//go:embed containerd.toml
	containerdTemplate string
	//go:embed bridge.conflist
	bridgeTemplate string
	//go:embed kubelet.yaml
	kubeletTemplate string
)

// cgroup is the control group of the node's pods.
func (n Node) cgroup() string { return cgroupRoot + "/" + n.Name }

// containerdSocket is where the containerd of a node listens.
func (d Description) containerdSocket(node Node) string {
	return d.Node(node.Name, "containerd", "containerd.sock")
}

func (d Description) containerd(node Node) Component {
	configuration, network := d.Node(node.Name, "config", "containerd.toml"), d.Node(node.Name, "cni")
	path := func(name string) string { return d.Node(node.Name, "containerd", name) }
	return Component{
		Name:      containerdName + node.Suffix,
		Path:      "/usr/bin/containerd",
		Arguments: []string{"--config=" + configuration},
		Health:    Probe{Command: []string{"ctr", "--address", d.containerdSocket(node), "version"}},
		Files: map[string]string{
			configuration: strings.NewReplacer(
				"{root}", path("root"),
				"{state}", path("state"),
				"{socket}", d.containerdSocket(node),
				"{optional}", path("optional"),
				"{network}", network,
				"{runc}", path("runc"),
				"{pause}", images.PauseReference,
			).Replace(containerdTemplate),
			network + "/10-bridge.conflist": strings.NewReplacer("{bridge}", bridge, "{addresses}", d.Path("addresses")).Replace(bridgeTemplate),
		},
	}
}

func (d Description) kubelet(node Node) Component {
	configuration, resolver := d.Node(node.Name, "config", "kubelet.yaml"), d.Node(node.Name, "config", "resolv.conf")
	// Taints can be encoded. JSON is also YAML.
	taints, _ := json.Marshal(node.Taints)
	return d.built(toolchain.Kubernetes(d.KubeletVersion), kubeletName, Component{
		Name: kubeletName + node.Suffix,
		Arguments: []string{
			"--config=" + configuration,
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.Address,
			"--root-dir=" + d.Node(node.Name, "kubelet"),
			"--node-labels=" + node.Labels,
			"--v=2",
		},
		Health: Probe{URL: "http://" + loopback(node.HealthPort) + "/healthz"},
		User:   User{Name: "system:node:" + node.Name, Groups: []string{"system:nodes"}},
		Files: map[string]string{resolver: "nameserver 127.0.0.1\n", configuration: strings.NewReplacer(
			"{address}", node.Address,
			"{healthPort}", strconv.Itoa(node.HealthPort),
			"{taints}", string(taints),
			"{certificate}", d.servingCertificate(),
			"{key}", d.servingKey(),
			"{socket}", d.containerdSocket(node),
			"{cgroup}", node.cgroup(),
			"{resolver}", resolver,
			"{logs}", d.Node(node.Name, "pod-logs"),
			"{plugins}", d.Node(node.Name, "volume-plugins"),
		).Replace(kubeletTemplate)},
	})
}
