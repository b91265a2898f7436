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

// Marks are labels and taints of nodes. A node that has one of them is marked.
type Marks struct {
	Labels []LabelMatch
	// Taints are taint keys.
	Taints []string
}

// NodeMarks says by which marks the kind of a node is known. A node with none of them is a real one.
type NodeMarks struct {
	// Virtual nodes have no kubelet. These marks go before those of Daemonless.
	Virtual Marks
	// Daemonless nodes have a kubelet and no Kruise daemon.
	Daemonless Marks
}

// DefaultNodeMarks covers virtual-kubelet and the providers built on it (label and taint of its own node controller),
// and AWS Fargate, whose nodes have a kubelet and run no DaemonSet.
func DefaultNodeMarks() NodeMarks {
	return NodeMarks{
		Virtual: Marks{
			Labels: []LabelMatch{{Key: "type", Value: "virtual-kubelet"}},
			Taints: []string{"virtual-kubelet.io/provider"},
		},
		Daemonless: Marks{
			Labels: []LabelMatch{{Key: "eks.amazonaws.com/compute-type", Value: "fargate"}},
		},
	}
}

// Classify returns the kind of the node: NodeUnknown for nil, and otherwise by its labels and taints.
func (m NodeMarks) Classify(node *corev1.Node) NodeKind {
	switch {
	case node == nil:
		return NodeUnknown
	case m.Virtual.on(node):
		return NodeVirtual
	case m.Daemonless.on(node):
		return NodeDaemonless
	}
	return NodeReal
}

func (m Marks) on(node *corev1.Node) bool {
	return slices.ContainsFunc(m.Labels, func(match LabelMatch) bool {
		value, ok := node.Labels[match.Key]
		return ok && (match.Value == "" || match.Value == value)
	}) || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(m.Taints, t.Key) })
}
