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

// NodeMatcher matches a node that has one of the labels or taints.
type NodeMatcher struct {
	Labels []LabelMatch
	// Taints are taint keys.
	Taints []string
}

// NodeKindRules determine the kind of a node. A node that matches none of them is real.
type NodeKindRules struct {
	// All is the kind of every node, which the operator then need not read. It is empty if it reads nodes.
	All NodeKind
	// Virtual nodes have no kubelet. Virtual takes precedence over Daemonless.
	Virtual NodeMatcher
	// Daemonless nodes have a kubelet and no OpenKruise daemon.
	Daemonless NodeMatcher
}

// DefaultNodeKindRules covers virtual-kubelet and the providers built on it (label and taint of its own node controller),
// and AWS Fargate, whose nodes have a kubelet and run no DaemonSet.
func DefaultNodeKindRules() NodeKindRules {
	return NodeKindRules{
		Virtual: NodeMatcher{
			Labels: []LabelMatch{{Key: "type", Value: "virtual-kubelet"}},
			Taints: []string{"virtual-kubelet.io/provider"},
		},
		Daemonless: NodeMatcher{
			Labels: []LabelMatch{{Key: "eks.amazonaws.com/compute-type", Value: "fargate"}},
		},
	}
}

// Classify returns the kind of the node: All if it is set, NodeUnknown for nil, and otherwise by its labels and taints.
func (r NodeKindRules) Classify(node *corev1.Node) NodeKind {
	switch {
	case r.All != "":
		return r.All
	case node == nil:
		return NodeUnknown
	case r.Virtual.matches(node):
		return NodeVirtual
	case r.Daemonless.matches(node):
		return NodeDaemonless
	}
	return NodeReal
}

func (m NodeMatcher) matches(node *corev1.Node) bool {
	return slices.ContainsFunc(m.Labels, func(match LabelMatch) bool {
		value, ok := node.Labels[match.Key]
		return ok && (match.Value == "" || match.Value == value)
	}) || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(m.Taints, t.Key) })
}
