// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// LabelMatch matches a label by key, and by value unless that is empty.
type LabelMatch struct {
	Key, Value string
}

// VirtualNodes says by which labels and taints a node is known to be virtual.
type VirtualNodes struct {
	Labels []LabelMatch
	// Taints are taint keys.
	Taints []string
}

// DefaultVirtualNodes covers virtual-kubelet and the providers built on it (label and taint of its own node
// controller), and AWS Fargate (label of its nodes).
func DefaultVirtualNodes() VirtualNodes {
	return VirtualNodes{
		Labels: []LabelMatch{
			{Key: "type", Value: "virtual-kubelet"},
			{Key: "eks.amazonaws.com/compute-type", Value: "fargate"},
		},
		Taints: []string{"virtual-kubelet.io/provider"},
	}
}

// Classify returns the kind of the node: NodeUnknown for nil, and otherwise by its labels and taints.
func (v VirtualNodes) Classify(node *corev1.Node) NodeKind {
	if node == nil {
		return NodeUnknown
	}
	for _, match := range v.Labels {
		if value, ok := node.Labels[match.Key]; ok && (match.Value == "" || match.Value == value) {
			return NodeVirtual
		}
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(v.Taints, t.Key) }) {
		return NodeVirtual
	}
	return NodeReal
}
