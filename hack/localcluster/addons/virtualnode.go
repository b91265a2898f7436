// SPDX-License-Identifier: Apache-2.0

package addons

const (
	// VirtualNode is the name of the virtual node's program.
	VirtualNode = "virtual-node"
	// VirtualNodeName is the name of the node, which no kubelet serves.
	VirtualNodeName = "virtual-1"
)

// The version is that of virtual-kubelet. The program may do what the node authorizer does not let a virtual kubelet do.
var _ = add(Addon{
	Name:      VirtualNode,
	Version:   "v1.13.0",
	Duration:  "2 minutes",
	Directory: "../../e2e/virtualnode",
	Packages:  map[string]string{VirtualNode: "github.com/sidecar-termination/operator/e2e/virtualnode"},
	Processes: []Process{{
		Name: VirtualNode,
		Arguments: []string{
			"--node=" + VirtualNodeName, "--kubeconfig={kubeconfig}", "--images={cluster}/images",
			"--directory={cluster}/nodes/" + VirtualNodeName + "/pods",
			"--health-address=127.0.0.1:21270",
		},
		Health: "http://127.0.0.1:21270/healthz",
		Node:   VirtualNodeName,
	}},
})
