// SPDX-License-Identifier: Apache-2.0

package components

import "path/filepath"

const (
	// VirtualNode is the name of the program that serves the virtual node.
	VirtualNode = "virtual-node"
	// VirtualNodeName is the node that is served by no kubelet.
	VirtualNodeName = "virtual-1"

	virtualNodeCgroup = CgroupRoot + "/" + VirtualNodeName
)

func (c Cluster) virtualNode() Component {
	return Component{
		Name:    VirtualNode,
		Version: c.VirtualNode.Version,
		Path:    filepath.Join(c.VirtualNode.Directory, VirtualNode),
		Arguments: []string{
			"--node=" + VirtualNodeName,
			"--kubeconfig=" + c.Kubeconfig(VirtualNode),
			"--images=" + c.Path("images"),
			"--directory=" + c.Node(VirtualNodeName, "pods"),
			"--cgroup=" + virtualNodeCgroup,
			"--health-address=" + loopback(virtualNodeHealthPort),
		},
		Listens: []string{loopback(virtualNodeHealthPort)},
		Health:  Probe{URL: "http://" + loopback(virtualNodeHealthPort) + "/healthz"},
	}
}
